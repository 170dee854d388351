"""`python -m benchmarks.gpu.pack WHEELS`: packages for a machine without an index.

Wheels of everything in `environment.NEEDED` for that machine's Python, and PyCUDA's
source, which is built there. `--skip` excludes what the machine has.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.environment import NEEDED

# platform tags, best first; pip needs all acceptable ones
_TAGS = (28, 27, 24, 17)
_OLD = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")


def main() -> None:
    """Fill the folder; report unavailable packages, with exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.pack")
    parser.add_argument("wheels", type=Path)
    parser.add_argument(
        "--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}"
    )
    parser.add_argument("--skip", default="", help="names, comma-separated")
    given = parser.parse_args()
    given.wheels.mkdir(parents=True, exist_ok=True)
    missing = []
    if not _wheels(given.wheels, given.python):
        missing.append("wheels of required packages")
    for name in filter(None, given.skip.split(",")):
        for path in given.wheels.glob(f"{name.strip().replace('-', '_')}-*.whl"):
            path.unlink()
    if not _source("pycuda>=2024.1", given.wheels):
        missing.append("pycuda's source")
    count = len(list(given.wheels.iterdir()))
    print(f"{count} files in {given.wheels}")
    if missing:
        sys.exit(f"unavailable: {', '.join(missing)}")


def _wheels(folder: Path, python: str) -> bool:
    """All required packages and their dependencies."""
    tags = [f"manylinux_2_{minor}_x86_64" for minor in _TAGS]
    options = ["--only-binary=:all:", "--python-version", python]
    options += ["--implementation", "cp"]
    for tag in (*tags, *_OLD):
        options += ["--platform", tag]
    wanted = (f"{name}>={least}" for name, least in NEEDED.items())
    return _downloaded([*options, *wanted], folder)


def _source(wanted: str, folder: Path) -> bool:
    if list(folder.glob("pycuda-*.tar.gz")):
        return True
    return _downloaded(["--no-deps", "--no-binary=pycuda", wanted], folder)


def _downloaded(options: list[str], folder: Path) -> bool:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--dest",
        str(folder),
    ]
    done = subprocess.run([*command, *options], check=False)  # noqa: S603 - our own
    return done.returncode == 0


if __name__ == "__main__":
    main()
