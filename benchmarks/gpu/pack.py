"""`python -m benchmarks.gpu.pack WHEELS`: what travels to a machine without an index.

Wheels of everything in `environment.NEEDED`, or of the packages in `--only`, for that
machine's Python. With `--compilers 13.0`, also WHEELS/kernels: the machine code of the
works' kernels, made by these compilers, which a machine with the same ones does not
compile again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.environment import NEEDED, OPENERS, missing, version_here

KERNELS = "kernels"  # the folder of machine code
_COMPILERS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvcc")
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
    parser.add_argument("--only", default="", help="names, comma-separated")
    parser.add_argument("--compilers", default="", help="their version, such as 13.0")
    parser.add_argument("--arch", default="sm_90a", help="what kernels are built for")
    given = parser.parse_args()
    if given.compilers and (absent := missing(given.wheels, ["tensorlang"])):
        sys.exit(
            f"make bench-gpu-pack: {', '.join(absent)}: missing here, where kernels "
            "are to be built; make setup installs it"
        )
    given.wheels.mkdir(parents=True, exist_ok=True)
    names = [name.strip() for name in given.only.split(",") if name.strip()]
    lacking = []
    if not _wheels(given.wheels, given.python, names):
        lacking.append("wheels of required packages")
    if given.compilers and not _kernels(given.wheels, given.compilers, given.arch):
        lacking.append(f"compilers {given.compilers}")
    count = len(list(given.wheels.iterdir()))
    print(f"{count} files in {given.wheels}")
    if lacking:
        sys.exit(f"unavailable: {', '.join(lacking)}")


def _wheels(folder: Path, python: str, names: list[str]) -> bool:
    """All required packages with their dependencies, or only those that are named.

    Their versions are those that are here, which the tests ran with.
    """
    tags = [f"manylinux_2_{minor}_x86_64" for minor in _TAGS]
    options = ["--only-binary=:all:", "--python-version", python]
    options += ["--implementation", "cp", "--dest", str(folder)]
    for tag in (*tags, *_OLD):
        options += ["--platform", tag]
    options += ["--no-deps"] if names else []
    needed = {**NEEDED, **OPENERS}
    least = {name.lower(): wanted for name, wanted in needed.items()}
    wanted = [
        f"{name}=={here}"
        if (here := version_here(name))
        else f"{name}>={least.get(name.lower(), '0')}"
        for name in names or needed
    ]
    return _pip("download", *options, *wanted)


def _kernels(folder: Path, version: str, arch: str) -> bool:
    """Machine code of the works' kernels, made by compilers of this version."""
    with tempfile.TemporaryDirectory(prefix="tensorlang-") as place:
        wanted = (f"{name}=={version}.*" for name in _COMPILERS)
        if not _pip("install", "--no-deps", "--target", place, *wanted):
            return False
        (toolkit,) = Path(place, "nvidia").glob("cu*")
        kernels = folder / KERNELS
        kernels.mkdir(mode=0o700, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.gpu.builds"]
        environment = {"CUDA_HOME": str(toolkit), "TENSORLANG_CACHE": str(kernels)}
        done = subprocess.run(  # noqa: S603 - our own
            [*command, "--target", f"cuda:{arch}"],
            env=os.environ | environment,
            check=False,
        )
        if not any(kernels.iterdir()):
            kernels.rmdir()
        return done.returncode == 0


def _pip(action: str, *options: str) -> bool:
    command = [sys.executable, "-m", "pip", action, "--quiet", *options]
    done = subprocess.run(command, check=False)  # noqa: S603 - our own
    return done.returncode == 0


if __name__ == "__main__":
    main()
