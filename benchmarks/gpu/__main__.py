"""`python -m benchmarks.gpu OUT`: build, verify, tune and measure on a CUDA machine.

Needs only Python, a GPU with its driver, CUDA's compilers, and the packages in
`WHEELS`. Each step is a separate process with a time limit, and costs itself alone; the
same command resumes. The most informative steps come first, so that a run may be
stopped at any time: a tiny kernel of each kind, the ring of barriers, matrix products
and convolutions untuned, the runtime's tests, the device limits, the other works
untuned, then each work tuned and measured again, the longest tests last. Before tuning,
no step takes the time that tuning has. OUT/all.tar.gz is complete after each step;
`--from` resumes from it, on another machine too. With `--rehearse` all of it runs at a
small size without a GPU, whose place the tests' machine for PTX takes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
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
from benchmarks.gpu.first import KINDS
from benchmarks.gpu.pack import KERNELS
from benchmarks.gpu.report import report
from benchmarks.gpu.steps import Run, Step, python, replace

ROOT = Path(__file__).parents[2]
_TARGET = "cuda"
_REHEARSED_SCALE = 1 << 12
_REHEARSAL = Path(__file__).parent / "rehearsal"
_SLOWER = 10  # a rehearsal's tests and searches
_FEW = 7  # rounds before tuning
_TLANG = python("-c", "from tensorlang.cli import main; main()")
# packages that the tree of links contains
_PARTS = ("schedules", "templates", "tuner", "ops", "results")
# tests -> time limit in seconds: barriers with a wrong phase wait for ever, so their
# tests are alone; a quick selection, and at the end the rest
_RING = {"tests/cuda/test_hopper.py -k ring": 30}  # in one process
_FIRST_TESTS = {"tests/cuda/test_runtime.py tests/cuda/test_arrays.py": 120}
_TESTS = {"tests/cuda": 500, "tests/targets": 400}
_PASSED = r"\d+ passed"  # else all were skipped
_FAILED_TESTS = r"(?m)^.*\b(?:FAILED|ERROR) +(\S+::\S+)"  # as `-v` names them at once
_MOST_WORKERS = 16  # processes on the GPU
_ONE_TEST = 120  # seconds, where pytest-timeout is installed
_CODE = re.compile(rb'"sizes": ?{"cubin": ?\d+}')  # a cache entry of machine code
_MOST_CODE = 8 << 20  # bytes of machine code in the archive
_KEPT = ("bench.md", "bench.json", "machine.json", "limits.json", "plan.json", "first")
_KEPT += ("state.json", "log.txt", "works", "tuned", "records", "data")


def main() -> None:
    """Run all steps; exit with 1 if one failed, 2 without a GPU."""
    given = arguments.parsed(__doc__)
    found = environment.gpu()
    if not found and not given.rehearse:
        sys.exit(_complain("this machine has no CUDA GPU that its driver finds"))
    if problem := arguments.mistake(given):
        sys.exit(_complain(problem))
    work = given.work or given.out.with_name(f"{given.out.name}.work")
    site = work / "site"
    _resumed(given)
    environ, out = _environment(site, given, work), given.out

    def told() -> str:
        return _told(out, given.archive, _made(work / KERNELS, given.wheels))

    run = Run(out, given.limit, environ, told)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C
    try:
        _machine(run, found)
        if _prepared(run, site, work, given):
            _all(run, given)
    except KeyboardInterrupt:
        sys.exit("stopped early; the same command resumes")
    finally:
        print(told())
    if run.failed:
        sys.exit(f"failed: {', '.join(run.failed)}; see OUT/log.txt")


def _complain(sentence: str) -> int:
    print(f"make bench-gpu: {sentence}", file=sys.stderr)
    return 2


def _environment(site: Path, given: argparse.Namespace, work: Path) -> dict[str, str]:
    """Environment of the steps: tensorlang and added packages first; caches in OUT."""
    tree, site, out = work.absolute() / "tree", site.absolute(), given.out
    path = [str(tree), str(site), os.environ.get("PYTHONPATH", "")]
    path += [str(_REHEARSAL)] if given.rehearse else []
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "TENSORLANG_RECORDS": str((out / "records").absolute()),
        "XDG_DATA_HOME": str((out / "data").absolute()),
        "XDG_CACHE_HOME": str((work / "cache").absolute()),
        "TENSORLANG_CACHE": str((work / KERNELS).absolute()),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONUNBUFFERED": "1",
    }


def _resumed(given: argparse.Namespace) -> None:
    """Unpack the results of an earlier run, unless there are some already."""
    if given.earlier and not (given.out / "state.json").exists():
        with tarfile.open(given.earlier) as archive:
            archive.extractall(given.out, filter="data")


def _all(run: Run, given: argparse.Namespace) -> None:
    """Run all steps, most informative first; with `--only`, those of works alone."""
    run.reserved = min(given.budget, given.limit / 3)
    if not given.only:
        run.run(Step("doctor", [*_TLANG, "doctor"], 60, again=True))
        run.run_all(_first(kind, given) for kind in KINDS)
        _tests(run, _RING, given)
    plan = _planned(run, given)
    heavy = [name for name, work in plan.items() if work["weight"] > 1]
    rounds = min(_FEW, given.rounds)
    for name in heavy:
        _measure(run, name, given, "works", rounds=rounds)
    if not given.only:
        _tests(run, _FIRST_TESTS, given)
    if not (given.only and given.rehearse):
        step = python("-m", "benchmarks.gpu.limits", *_scale(given))
        limit = _slower(60, given)
        run.run(Step("limits of the device", step, limit, "limits.json"))
    for name in plan:
        if name not in heavy:
            _measure(run, name, given, "works", rounds=rounds)
    run.reserved = 0.0
    every = sum(len(work["tuned"]) * work["weight"] for work in plan.values())
    for name, work in plan.items():
        if given.rehearse and name in heavy:
            continue  # the machine for PTX takes minutes to check such candidates
        share = given.budget * work["weight"] / max(every, 1)
        if _tuned(run, work["tuned"], share, given):
            _measure(run, name, given, "tuned", rounds=given.rounds)
    if not (given.only or given.rehearse):
        _tests(run, _TESTS, given)


def _first(kind: str, given: argparse.Namespace) -> Step:
    """A tiny kernel: they run side by side, as each takes a process to start."""
    command, limit = python("-m", "benchmarks.gpu.first", kind), _slower(60, given)
    plain = re.sub(r"\W+", "_", kind)
    return Step(f"first {kind}", command, limit, f"first/{plain}.json")


def _prepared(run: Run, site: Path, work: Path, given: argparse.Namespace) -> bool:
    """Install missing packages, kernels, and tensorlang as a tree of links."""
    tree = work.absolute() / "tree"
    _link(tree, [ROOT / "benchmarks"])
    _link(tree / "tensorlang", (ROOT / "tensorlang").iterdir())
    _link(tree / "tensorlang", (ROOT / part for part in _PARTS))
    setup = ["-m", "benchmarks.gpu.setup", str(site.absolute())]
    setup += [str(given.wheels.absolute())] if given.wheels else []
    setup += [] if given.rehearse else ["--gpu"]
    (work / KERNELS).mkdir(mode=0o700, exist_ok=True)
    for folder in (given.wheels, given.out):  # an earlier run's are in OUT
        if folder and (folder / KERNELS).is_dir():
            shutil.copytree(folder / KERNELS, work / KERNELS, dirs_exist_ok=True)
            (work / KERNELS).chmod(0o700)
    return run.run(Step("set up", python(*setup), 300, again=True))


def _link(folder: Path, places: Iterable[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for place in places:
        link = folder / place.name
        if not link.is_symlink() and place.name != "__pycache__":
            link.symlink_to(place)


def _machine(run: Run, found: str) -> None:
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
        "device": found or "none: a rehearsal with a machine for PTX",
        "driver, clock, memory": told,
        "python": platform.python_version(),
        "day": time.strftime("%Y-%m-%d"),
    }
    replace(run.out / "machine.json", json.dumps(about) + "\n")


def _tests(run: Run, tests: Mapping[str, float], given: argparse.Namespace) -> None:
    """Run tests that need the device."""
    options = ["-v", "--maxfail=20", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    options += ["--ptx"] if given.rehearse else []
    if find_spec("pytest_timeout"):  # from a thread: the driver hears no signals
        options += ["--timeout", str(_ONE_TEST), "--timeout-method", "thread"]
    workers = str(max(2, min(_MOST_WORKERS, os.cpu_count() or 4)))  # they compile
    options += ["-n", workers] if find_spec("xdist") and tests is not _RING else []
    for places, seconds in tests.items():
        chosen = [
            str(ROOT / word) if word.startswith("tests/") else word
            for word in places.split()
        ]
        command = python("-m", "pytest", *options, *chosen)
        limit = _slower(seconds, given)
        run.run(Step(places, command, limit, proof=_PASSED, tells=_FAILED_TESTS))


def _slower(seconds: float, given: argparse.Namespace) -> float:
    """A time limit, longer where the machine for PTX takes the GPU's place."""
    return seconds * (_SLOWER if given.rehearse else 1)


def _scale(given: argparse.Namespace) -> list[str]:
    return ["--scale", str(_REHEARSED_SCALE if given.rehearse else 1)]


def _planned(run: Run, given: argparse.Namespace) -> dict[str, Any]:
    """The works with their workloads to tune, after building their kernels once."""
    listed = python("-m", "benchmarks.gpu.measure", "--list", *_scale(given))
    if not run.run(Step("list the works", listed, 120, "plan.json", again=True)):
        return {}
    if not given.only:
        step = python("-m", "benchmarks.gpu.builds", *_scale(given))
        run.run(Step("build the works' kernels", step, _slower(120, given)))
    plan = json.loads((run.out / "plan.json").read_text())
    kept = {name: work for name, work in plan.items() if given.only in name}
    if not kept:
        print(f"no work has {given.only!r} in its name; they are: {', '.join(plan)}")
        run.failed.append(f"--only {given.only}")
    return kept


def _tuned(
    run: Run,
    workloads: Iterable[Iterable[str]],
    share: float,
    given: argparse.Namespace,
) -> bool:
    """Tune each workload of a work for some seconds; return whether one was tuned."""
    budget = ["--trials", "2"] if given.rehearse else ["--budget", f"{share:.1f}s"]
    limit = _slower(2 * share + 120, given)
    done = []
    for asked in workloads:
        label = f"tune {' '.join(asked)}"
        command = [*_TLANG, "tune", *asked, *budget, "--target", _TARGET]
        done.append(run.run(Step(label, command, limit)))
    return any(done)


def _measure(
    run: Run,
    name: str,
    given: argparse.Namespace,
    folder: str,
    *,
    rounds: int,
) -> None:
    """Measure a work in its current state, into a folder."""
    options = [*_scale(given), "--rounds", str(rounds)]
    step = python("-m", "benchmarks.gpu.measure", name, *options)
    plain = re.sub(r"\W+", "_", name)
    label = f"measure {name}" + (", tuned" if folder == "tuned" else "")
    limit = _slower(120, given)
    run.run(Step(label, step, limit, f"{folder}/{plain}.json"))


def _made(kernels: Path, wheels: Path | None) -> list[Path]:
    """The machine code that was made here, the first ones, up to a size."""
    brought = wheels / KERNELS if wheels else None
    found, size = [], 0
    files = ((path.stat(), path) for path in kernels.glob("*.tlc"))
    for status, path in sorted(files, key=lambda pair: pair[0].st_mtime):
        if brought and (brought / path.name).exists():
            continue
        with path.open("rb") as file:
            _, line = file.readline(), file.readline()
        if not _CODE.search(line):
            continue  # also the host's code: of use for this kind of CPU alone
        size += status.st_size
        if size > _MOST_CODE:
            break
        found.append(path)
    return found


def _told(out: Path, archived: Path, kernels: Iterable[Path]) -> str:
    """Write the tables, and an archive of everything but build products.

    Args:
        out: The output folder.
        archived: The archive.
        kernels: Files with machine code, which are archived too.
    """
    said = report(out)
    new = archived.with_name(f"{archived.name}.new")
    with tarfile.open(new, "w:gz", compresslevel=1) as archive:
        for name in _KEPT:
            if (out / name).exists():
                archive.add(out / name, name)
        for path in kernels:
            archive.add(path, f"{KERNELS}/{path.name}")
    new.replace(archived)
    return said


if __name__ == "__main__":
    main()
