"""Releases: a complete source distribution, a pure wheel, one place for the version."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tensorlang.version import __version__

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]


@pytest.fixture(scope="module")
def tracked():
    """The files of the repository."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no git repository")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in done.stdout.splitlines() if (ROOT / name).exists()]


def test_the_version_has_one_place():
    assert "version" in PROJECT["project"]["dynamic"]
    attribute = SETUPTOOLS["dynamic"]["version"]["attr"]
    assert attribute == "tensorlang.version.__version__"
    assert f"## {__version__} " in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_every_file_is_in_the_source_distribution(tracked):
    """Grafted, named, of a package, or added by setuptools itself."""
    words = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines()]
    grafted = {line[1] for line in words if line and line[0] == "graft"}
    named = {name for line in words if line and line[0] == "include" for name in line}
    own = {"pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"}
    packages = {Path(path).parts[0] for path in SETUPTOOLS["package-dir"].values()}
    missing = [
        path
        for path in tracked
        if path.parts[0] not in grafted | packages and path.name not in named | own
    ]
    assert missing == []


def test_every_package_is_in_the_wheel(tracked):
    places = SETUPTOOLS["package-dir"]
    found = set()
    for path in tracked:
        if path.suffix == ".py" and path.parts[0] in places.values():
            parts = path.parent.parts
            found.add(
                ".".join(parts if parts[0] == "tensorlang" else ("tensorlang", *parts))
            )
    assert found <= set(SETUPTOOLS["packages"])


def test_files_of_packages_are_in_the_wheel(tracked):
    """Templates, styles and records; only tables for people are left out."""
    for path in tracked:
        parts = (
            path.parts if path.parts[0] == "tensorlang" else ("tensorlang", *path.parts)
        )
        if (
            path.parts[0] not in SETUPTOOLS["package-dir"].values()
            or path.suffix == ".py"
        ):
            continue
        patterns = [
            Path(*package.split("."), pattern)
            for package, several in SETUPTOOLS["package-data"].items()
            for pattern in several
        ]
        kept = any(Path(*parts).match(str(pattern)) for pattern in patterns)
        assert kept or path.suffix in {".md", ".svg"}, path


def test_a_release_is_a_commit_with_its_tag(tmp_path):
    if shutil.which("make") is None or shutil.which("git") is None:
        pytest.skip("there is no make or git")
    for name in ("Makefile", "tensorlang/version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    done = subprocess.run(
        ["make", "dist"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert f"git tag v{__version__}" in done.stdout
