"""Run the tests nearest to what has changed: `make test-changed [SINCE=main]`.

A test file is near to a change that it imports itself, further where it imports what
imports that, and so on; a package is taken to import its modules. The nearest ones are
run, as many as fit into the time; how long each took is known from earlier runs.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
TREE = ROOT / "build" / "lint"
TIMES = ROOT / ".pytest_cache" / "v" / "tensorlang" / "seconds"
UNKNOWN = 7.0  # seconds of a test file that has not been run yet
OWN = ("ops", "schedules", "templates", "tuner")  # packages beside `tensorlang/`


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--since", default="HEAD", help="what to compare with")
    parser.add_argument("--seconds", type=float, default=80, help="of all processors")
    options, rest = parser.parse_known_args()
    found = changed(options.since)
    chosen = list(within(options.seconds, nearest(found)))
    if not chosen:
        print(f"no test is near to what has changed since {options.since}")
        return 0
    print(f"{len(found)} files have changed; the {len(chosen)} nearest test files:")
    return subprocess.call(
        [sys.executable, "-m", "pytest", "-q", "-n", "auto", *rest, *chosen], cwd=ROOT
    )


def changed(since: str) -> list[Path]:
    """The files that differ from where a commit was left, and those unknown to git."""
    asked = (
        ["git", "diff", "--name-only", "--merge-base", since],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    lines = (subprocess.check_output(a, cwd=ROOT, text=True).split("\n") for a in asked)
    names = {line for found in lines for line in found if line}
    return sorted(ROOT / name for name in names if (ROOT / name).exists())


def nearest(files: Iterable[Path]) -> list[Path]:
    """All test files that may see a change, the nearest first."""
    files = list(files)
    distances = {path: 0 for path in files if path.name.startswith("test_")}
    sys.path.insert(0, str(TREE))  # all packages in one folder, as they are installed
    graph = grimp.build_graph("tensorlang")
    tests = {path: imported(path) for path in sorted(ROOT.glob("tests/**/test_*.py"))}
    reached = {module_of(path) for path in files} & graph.modules
    places = {(path.parent.name, path.stem) for path in files}
    seen, distance = set(reached), 1
    while reached:
        for path, names in tests.items():
            if names & reached:
                distances.setdefault(path, distance)
        below = (graph.find_modules_that_directly_import(name) for name in reached)
        packages = {name.rpartition(".")[0] for name in reached} & graph.modules
        reached = packages.union(*below) - seen
        seen |= reached
        distance += 1

    def rank(path: Path) -> tuple[bool, int, bool, Path]:
        beside = [stem for folder, stem in places if folder in path.parts]
        named = any(stem in path.stem for stem in beside)
        return not named, distances[path], not beside, path

    return sorted(distances, key=rank)


def module_of(path: Path) -> str:
    """The module that a source file is, by its dotted name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in OWN:
        parts = ("tensorlang", *parts)
    return ".".join(parts).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    """The modules of tensorlang that a file imports, and those that it may mean."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in names if name.startswith("tensorlang.")}


def within(seconds: float, files: Iterable[Path]) -> Iterator[str]:
    """As many of the files, from the first one on, as take no longer."""
    times = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    for path in files:
        name = str(path.relative_to(ROOT))
        seconds -= times.get(name, UNKNOWN)
        if seconds < 0:
            return
        yield name


if __name__ == "__main__":
    sys.exit(main())
