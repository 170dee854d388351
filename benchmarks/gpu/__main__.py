"""`python -m benchmarks.gpu OUT`: build, verify, tune and measure on a CUDA machine.

Needs only Python, a GPU with its driver, CUDA's compilers, and the packages in
`WHEELS`. Each step is a separate process; the same command resumes. The most
informative steps come first, so that a run may be stopped at any time: a first kernel,
the device limits, every work untuned, then each work tuned and measured again, the
longest tests last. OUT/all.tar.gz is complete after each step; `--from` resumes from
it, on another machine too. With `--dry-run opencl` or `llvm` everything runs at a small
size without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu import arguments, environment
from benchmarks.gpu.report import report
from benchmarks.gpu.steps import Run, Step, python, replace

ROOT = Path(__file__).parents[2]
_DRY_SCALE = 256
_FEW = 7  # rounds before tuning
# packages that the tree of links contains
_PARTS = ("schedules", "templates", "tuner", "ops", "results")
# tests -> time limit in seconds: a quick selection first, and the rest
_FIRST_TESTS = {"tests/cuda/test_runtime.py tests/cuda/test_arrays.py": 200}
_TESTS = {"tests/cuda": 500, "tests/targets": 400}
_DRY_TESTS = {"tests/unit/runtime/test_dlpack.py": 100}
_KEPT = ("bench.md", "bench.json", "machine.json", "limits.json", "plan.json")
_KEPT += ("state.json", "log.txt", "works", "tuned", "records", "data", "wheels")


def main() -> None:
    """Run all steps; exit with 1 if one failed, 2 without a GPU."""
    given = arguments.parsed(__doc__)
    found = environment.gpu()
    if not found and not given.dry_run:
        sys.exit(_complain("this machine has no CUDA GPU that its driver finds"))
    if problem := arguments.mistake(given):
        sys.exit(_complain(problem))
    target = given.dry_run or "cuda"
    work = given.work or given.out.with_name(f"{given.out.name}.work")
    site = work / "site"
    _resumed(given)
    run = Run(given.out, given.limit, _environment(site, given.out, work))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C
    try:
        _machine(run, found, target)
        if _prepared(run, site, work, given):
            _all(run, target, given)
    except KeyboardInterrupt:
        sys.exit("stopped early; the same command resumes")
    finally:
        print(_told(given.out))
    if run.failed:
        sys.exit(f"failed: {', '.join(run.failed)}; see OUT/log.txt")


def _complain(sentence: str) -> int:
    print(f"make bench-gpu: {sentence}", file=sys.stderr)
    return 2


def _environment(site: Path, out: Path, work: Path) -> dict[str, str]:
    """Environment of the steps: tensorlang and added packages first; caches in OUT."""
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


def _resumed(given: argparse.Namespace) -> None:
    """Unpack the results of an earlier run, unless there are some already."""
    if given.earlier and not (given.out / "state.json").exists():
        with tarfile.open(given.earlier) as archive:
            archive.extractall(given.out, filter="data")


def _all(run: Run, target: str, given: argparse.Namespace) -> None:
    """Run all steps, most informative first."""
    command = "from tensorlang.cli import main; main()"
    first = python("-c", command, "verify", "gelu", "--target", target)
    run.run(Step("first kernel", first, 180, again=True))
    _tests(run, _DRY_TESTS if given.dry_run else _FIRST_TESTS)
    plan = _planned(run, target, given)
    for name in plan:
        _measure(run, name, target, given, "works", rounds=_FEW)
        _told(run.out)
    every = sum(len(work["tuned"]) * work["weight"] for work in plan.values())
    for name, work in plan.items():
        share = given.budget * work["weight"] / max(every, 1)
        if _tuned(run, work["tuned"], target, share):
            _measure(run, name, target, given, "tuned", rounds=given.rounds)
        _told(run.out)
    if not given.dry_run:
        _tests(run, _TESTS)


def _prepared(run: Run, site: Path, work: Path, given: argparse.Namespace) -> bool:
    """Install missing packages, PyCUDA, and tensorlang as a tree of links."""
    tree = work.absolute() / "tree"
    _link(tree, [ROOT / "benchmarks"])
    _link(tree / "tensorlang", (ROOT / "tensorlang").iterdir())
    _link(tree / "tensorlang", (ROOT / part for part in _PARTS))
    setup = ["-m", "benchmarks.gpu.setup", str(site.absolute()), str(work.absolute())]
    setup += [str(given.wheels.absolute())] if given.wheels else []
    pycuda = [] if given.dry_run else [f"--pycuda={(run.out / 'wheels').absolute()}"]
    return run.run(Step("set up", python(*setup, *pycuda), 900, again=True))


def _link(folder: Path, places: Iterable[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for place in places:
        link = folder / place.name
        if not link.is_symlink() and place.name != "__pycache__":
            link.symlink_to(place)


def _machine(run: Run, found: str, target: str) -> None:
    """Write a description of the machine to OUT/machine.json."""
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
    replace(run.out / "machine.json", json.dumps(about) + "\n")


def _tests(run: Run, tests: Mapping[str, float]) -> None:
    """Run tests that need the device."""
    options = ["-q", "--maxfail=20", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    workers = str(max(2, min(8, (os.cpu_count() or 4) // 2)))
    options += ["-n", workers] if find_spec("xdist") else []
    for places, seconds in tests.items():
        paths = [str(ROOT / place) for place in places.split()]
        run.run(Step(places, python("-m", "pytest", *options, *paths), seconds))


def _planned(run: Run, target: str, given: argparse.Namespace) -> dict[str, Any]:
    """The works with their workloads to tune; measures the limits once."""
    scale = str(_DRY_SCALE if given.dry_run else 1)
    listed = python("-m", "benchmarks.gpu.measure", "--list", "--scale", scale)
    if not run.run(Step("list the works", listed, 120, "plan.json", again=True)):
        return {}
    if not given.dry_run:
        step = python("-m", "benchmarks.gpu.limits", "--target", target)
        run.run(Step("limits of the device", step, 180, "limits.json"))
    plan = json.loads((run.out / "plan.json").read_text())
    kept = {name: work for name, work in plan.items() if given.only in name}
    if not kept:
        print(f"no work has {given.only!r} in its name; they are: {', '.join(plan)}")
        run.failed.append(f"--only {given.only}")
    return kept


def _tuned(
    run: Run, workloads: Iterable[Iterable[str]], target: str, share: float
) -> bool:
    """Tune each workload of a work for some seconds; return whether one was tuned."""
    tlang = python("-c", "from tensorlang.cli import main; main()", "tune")
    done = []
    for asked in workloads:
        budget = ["--budget", f"{share:.1f}s", "--target", target]
        label = f"tune {' '.join(asked)}"
        step = Step(label, [*tlang, *asked, *budget], 2 * share + 120)
        done.append(run.run(step))
    return any(done)


def _measure(
    run: Run,
    name: str,
    target: str,
    given: argparse.Namespace,
    folder: str,
    *,
    rounds: int,
) -> None:
    """Measure a work in its current state, into a folder."""
    scale = str(_DRY_SCALE if given.dry_run else 1)
    options = ["--target", target, "--scale", scale, "--rounds", str(rounds)]
    step = python("-m", "benchmarks.gpu.measure", name, *options)
    plain = re.sub(r"\W+", "_", name)
    label = f"measure {name}" + (", tuned" if folder == "tuned" else "")
    run.run(Step(label, step, 240, f"{folder}/{plain}.json"))


def _told(out: Path) -> str:
    """Write the tables, and everything but build products to OUT/all.tar.gz."""
    said = report(out)
    new = out / "all.tar.gz.new"
    with tarfile.open(new, "w:gz") as archive:
        for name in _KEPT:
            if (out / name).exists():
                archive.add(out / name, name)
    new.replace(out / "all.tar.gz")
    return said


if __name__ == "__main__":
    main()
