"""The floors of the house: imports run downward only, and the check can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAPPED = ("schedules", "templates", "tuner", "ops", "results")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package as `import tensorlang` sees it."""
    ignore = shutil.ignore_patterns("__pycache__", "*.json")
    shutil.copytree(ROOT / "tensorlang", tmp_path / "tensorlang", ignore=ignore)
    for folder in MAPPED:
        shutil.copytree(ROOT / folder, tmp_path / "tensorlang" / folder, ignore=ignore)
    return tmp_path


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("importlinter", reason="import-linter is in the dev extra")
    config = ROOT / "pyproject.toml"
    program = (
        "import sys; sys.path.insert(0, '.');"
        "from importlinter.cli import lint_imports;"
        f"sys.exit(lint_imports(config_filename={str(config)!r}, no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_floor_imports_only_floors_below(tree: Path) -> None:
    result = lint_imports(tree)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("low", "high"),
    [("ir", "runtime"), ("scheduling", "codegen"), ("ops", "tuner")],
)
def test_an_upward_import_is_rejected(tree: Path, low: str, high: str) -> None:
    planted = tree / "tensorlang" / low / "planted.py"
    planted.write_text(f"import tensorlang.{high}\n")
    result = lint_imports(tree)
    assert result.returncode != 0
    assert f"tensorlang.{low}.planted -> tensorlang.{high}" in result.stdout


def test_the_top_level_folders_are_not_importable_by_themselves() -> None:
    """A second copy of `ops` would be a second copy of every registry."""
    for folder in MAPPED:
        program = f"import {folder}; assert 'tensorlang' not in {folder}.__name__"
        result = subprocess.run(
            [sys.executable, "-P", "-c", program],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        assert "ModuleNotFoundError" in result.stderr, result.stderr
