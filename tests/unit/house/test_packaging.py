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


def test_every_folder_of_modules_is_a_package_that_is_installed():
    found = {
        init.parent for place in PLACES.values() for init in place.rglob("__init__.py")
    }
    assert {folder(package) for package in SETUP["packages"]} == found


@pytest.mark.parametrize(
    ("package", "suffix"),
    [("tensorlang.templates", "*.j2"), ("tensorlang.results", "**/*.json")],
)
def test_every_file_that_is_read_is_installed(package, suffix):
    place = folder(package)
    patterns = SETUP["package-data"][package]
    taken = {file for pattern in patterns for file in place.glob(pattern)}
    assert taken == set(place.glob(suffix)) != set()
