"""What an installed package holds: each folder of modules, and each file they read."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
PLACES = {name: ROOT / folder for name, folder in SETUP["package-dir"].items()}


def folder(package):
    """Where a package stands: below the nearest one that is placed by name."""
    top = max((p for p in PLACES if f"{package}.".startswith(f"{p}.")), key=len)
    return PLACES[top].joinpath(*package.removeprefix(top).strip(".").split("."))


def test_every_folder_that_could_be_imported_is_a_package_that_is_installed():
    """Setuptools warns of each folder of data that is not listed as a package."""
    files = {file for place in PLACES.values() for file in place.rglob("*.*")}
    held = {
        above
        for file in files
        if file.parent.name != "__pycache__"
        for above in file.parents
        if above.is_relative_to(ROOT)
    }
    found = {
        inside
        for place in PLACES.values()
        for inside in held
        if inside.is_relative_to(place) and inside.name.isidentifier()
    }
    assert {folder(package) for package in SETUP["packages"]} == found


@pytest.mark.parametrize(
    ("package", "suffix"),
    [
        ("tensorlang.templates", "*.j2"),
        ("tensorlang.results.bench", "**/*.json"),
        ("tensorlang.results.records", "**/*.json"),
    ],
)
def test_every_file_that_is_read_is_installed(package, suffix):
    place = folder(package)
    patterns = SETUP["package-data"][package]
    taken = {file for pattern in patterns for file in place.glob(pattern)}
    assert taken == set(place.glob(suffix)) != set()
