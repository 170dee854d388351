"""`python -m benchmarks.gpu OUT`: build, verify, tune and measure on a CUDA machine.

Needs nothing but Python, a GPU with its driver, CUDA's compilers, and what `WHEELS`
holds. Each step is a process of its own; the same command goes on where it stopped.
With `--dry-run opencl` or `llvm` everything is done in a small size, without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu import environment
from benchmarks.gpu.report import report
from benchmarks.gpu.steps import Run, Step, python

ROOT = Path(__file__).parents[2]
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_DRY_SCALE = 256
# packages whose tree of links stands for an installation
_PARTS = ("schedules", "templates", "tuner", "ops", "results")
# folders of tests -> seconds that they may take
_TESTS = {"tests/cuda": 400, "tests/targets": 300}
_DRY_TESTS = {"tests/unit/runtime": 100}


def main() -> None:
    """Do all steps; exit code 1 where one failed, 2 where there is no GPU."""
    given = _arguments()
    found = environment.gpu()
    if not found and not given.dry_run:
        sys.exit(_complain("this machine has no CUDA GPU that its driver finds"))
    target = given.dry_run or "cuda"
    work = given.work or given.out / "work"
    site = work / "site"
    run = Run(given.out, given.limit, _environment(site, given.out, work))
    _prepared(run, site, work, given)
    _machine(run, found, target)
    _checked(run, target, dry=bool(given.dry_run))
    _measured(run, target, given)
    print(report(given.out))
    _archived(given.out)
    if run.failed:
        sys.exit(f"failed: {', '.join(run.failed)}; OUT/log.txt has what they said")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-gpu", description=__doc__)
    parser.add_argument("out", type=Path, help="folder for records, tables and logs")
    parser.add_argument("--budget", type=_seconds, default=600, help="for tuning")
    parser.add_argument("--limit", type=_seconds, default=3600, help="for everything")
    parser.add_argument("--wheels", type=Path, help="folder of `make bench-gpu-pack`")
    parser.add_argument("--work", type=Path, help="folder for what is built")
    parser.add_argument("--only", default="", help="works whose name holds this")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dry-run", choices=("llvm", "opencl"), default="")
    return parser.parse_args()


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 10m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def _complain(sentence: str) -> int:
    print(f"make bench-gpu: {sentence}", file=sys.stderr)
    return 2


def _environment(site: Path, out: Path, work: Path) -> dict[str, str]:
    """Of the steps: tensorlang and what was brought come first; files lie below OUT."""
    tree, site = work.absolute() / "tree", site.absolute()
    path = [str(tree), str(site), os.environ.get("PYTHONPATH", "")]
    home = environment.toolkit()
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "TENSORLANG_RECORDS": str((out / "records").absolute()),
        "XDG_DATA_HOME": str((out / "data").absolute()),
        "XDG_CACHE_HOME": str((work / "cache").absolute()),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONUNBUFFERED": "1",
        **({"CUDA_HOME": str(home)} if home else {}),
    }


def _prepared(run: Run, site: Path, work: Path, given: argparse.Namespace) -> None:
    """What is missing, PyCUDA, and tensorlang itself as a tree of links."""
    tree = work.absolute() / "tree"
    _link(tree, [ROOT / "benchmarks"])
    _link(tree / "tensorlang", (ROOT / "tensorlang").iterdir())
    _link(tree / "tensorlang", (ROOT / part for part in _PARTS))
    setup = ["-m", "benchmarks.gpu.setup", str(site.absolute()), str(work.absolute())]
    setup += [str(given.wheels.absolute())] if given.wheels else []
    pycuda = [] if given.dry_run else ["--pycuda"]
    run.run(Step("set up", python(*setup, *pycuda), 900))


def _link(folder: Path, places: Iterable[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for place in places:
        link = folder / place.name
        if not link.is_symlink() and place.name != "__pycache__":
            link.symlink_to(place)


def _machine(run: Run, found: str, target: str) -> None:
    """What was measured on, into OUT/machine.json."""
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,memory.total"]
    try:
        told = subprocess.run(  # noqa: S603 - a fixed command
            [*query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        told = "unknown"
    about = {
        "device": found or f"none: a dry run on {target}",
        "driver, clock, memory": told,
        "python": platform.python_version(),
        "day": time.strftime("%Y-%m-%d"),
    }
    (run.out / "machine.json").write_text(json.dumps(about) + "\n")


def _checked(run: Run, target: str, *, dry: bool) -> None:
    """A first kernel, then the tests that need the device."""
    command = "from tensorlang.cli import main; main()"
    first = python("-c", command, "verify", "gelu", "--target", target)
    run.run(Step("first kernel", first, 180))
    options = ["-q", "--maxfail=20", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    workers = str(max(2, min(8, (os.cpu_count() or 4) // 2)))
    options += ["-n", workers] if find_spec("xdist") else []
    for folder, seconds in (_DRY_TESTS if dry else _TESTS).items():
        command = python("-m", "pytest", *options, str(ROOT / folder))
        run.run(Step(folder, command, seconds))


def _measured(run: Run, target: str, given: argparse.Namespace) -> None:
    """Tune within the budget and measure, work by work."""
    scale = _DRY_SCALE if given.dry_run else 1
    listed = python("-m", "benchmarks.gpu.measure", "--list", "--scale", str(scale))
    if not run.run(Step("list the works", listed, 120, "plan.json", again=True)):
        return
    plan = json.loads((run.out / "plan.json").read_text())
    plan = {name: tuned for name, tuned in plan.items() if given.only in name}
    share = given.budget / max(sum(map(len, plan.values())), 1)
    tlang = python("-c", "from tensorlang.cli import main; main()", "tune")
    for name, tuned in plan.items():
        for arguments in tuned:
            budget = ["--budget", f"{share:.1f}s", "--target", target]
            label = f"tune {' '.join(arguments)}"
            run.run(Step(label, [*tlang, *arguments, *budget], 2 * share + 120))
        options = ["--target", target, "--scale", str(scale)]
        options += ["--rounds", str(given.rounds)]
        step = python("-m", "benchmarks.gpu.measure", name, *options)
        file = re.sub(r"\W+", "_", name)
        run.run(Step(f"measure {name}", step, 240, f"works/{file}.json"))
        report(run.out)


def _archived(out: Path) -> None:
    """Everything but what was built, in one file: OUT/all.tar.gz."""
    names = ("bench.md", "bench.json", "machine.json", "state.json", "log.txt")
    with tarfile.open(out / "all.tar.gz", "w:gz") as archive:
        for name in (*names, "works", "records"):
            if (out / name).exists():
                archive.add(out / name, name)


if __name__ == "__main__":
    main()
