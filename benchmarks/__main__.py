"""`python -m benchmarks`: measure everything, write results/bench/cpu.md and cpu.json.

Each thread count runs in a process of its own, kept on as many processors; within it
all calls are interleaved, so ratios are fair on a machine whose speed drifts. Other
libraries' threads wait as they usually do, and have gone to sleep before the next call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.tables import markdown

_RESULTS = Path(__file__).parents[1] / "results" / "bench"
_QUIET = {
    "NUMBA_THREADING_LAYER": "workqueue",
    "JAX_PLATFORMS": "cpu",
    "PYTHONWARNINGS": "ignore",
}


_COUNTED = ("TENSORLANG_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main() -> None:
    """Parse the arguments, measure, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="works whose name holds this")
    parser.add_argument("--threads", type=int, help="measure here, print JSON")
    parser.add_argument("--out", type=Path, default=_RESULTS)
    given = parser.parse_args()
    if given.threads:
        _stay_on(given.threads)
        from benchmarks.measure import measure

        json.dump(measure(given.threads, given.rounds, given.only), sys.stdout)
        return
    counts = sorted({1, os.cpu_count() or 1})
    found: dict[str, Any] = {
        "machine": _machine(),
        "runs": [_in_process(count, given) for count in counts],
    }
    if not given.only:
        from benchmarks.overheads import overheads

        found["overheads"] = overheads()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "cpu.json").write_text(json.dumps(found, indent=1) + "\n")
    _draw(found, given.out)
    (given.out / "cpu.md").write_text(markdown(found))
    print(markdown(found))


def _stay_on(threads: int) -> None:
    """Keep this process on as many processors: JAX cannot be told otherwise."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[-threads:])


def _draw(found: dict[str, Any], folder: Path) -> None:
    """The pictures, where matplotlib is there to draw them."""
    from benchmarks.plots import draw

    try:
        draw(found, folder)
    except ImportError as problem:
        print(f"no pictures: {problem} (it is in the bench extra)", file=sys.stderr)


def _in_process(threads: int, given: argparse.Namespace) -> dict[str, Any]:
    counted = dict.fromkeys(_COUNTED, str(threads))
    environment = os.environ | _QUIET | counted
    options = ["--threads", str(threads), "--rounds", str(given.rounds)]
    command = [sys.executable, "-m", "benchmarks", *options, "--only", given.only]
    done = subprocess.run(  # noqa: S603 - this module
        command, env=environment, stdout=subprocess.PIPE, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _machine() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    from tensorlang import targets

    found = {"device": str(targets.host()), "fingerprint": targets.host().fingerprint}
    for package in (
        "tensorlang",
        "numpy",
        "llvmlite",
        "jax",
        "torch",
        "numba",
        "tinygrad",
    ):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


if __name__ == "__main__":
    main()
