"""`python -m benchmarks [TABLE]`: measure, write TABLE.md and TABLE.json.

They are written into results/bench/MACHINE, where MACHINE names the CPU.

Tables: `cpu` (all works against peers), `batches` (batch-generic against static
kernels), `beside` (all threads while others compute), `defaults` (untuned against tuned
configurations), `exports` (C libraries against calls in Python), `model` (the cost
model's ranking of random candidates, all threads), `networks` (whole networks of
torchvision and transformers, if these are installed, against onnxruntime and PyTorch),
`opencl` (OpenCL against LLVM, all threads), `operators` (each operator alone, for the
figure on its page), `random` (shapes drawn at random against peers), `searching` (a
search from scratch), `suite` (fixed f32 shapes without records), `tuned` (these after a
search of each), `types` (random shapes in bf16, f16 and f64 against PyTorch).
With `--only`, the rows measured replace the old ones; others are kept.

Each thread count runs in a separate process, pinned to as many processors; within it
all calls are interleaved, so ratios are fair on a machine whose speed drifts. Threads
of other libraries use their default wait policy and sleep before the next call.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.tables import markdown
from tensorlang import targets

_RESULTS = Path(__file__).parents[1] / "results" / "bench"
_QUIET = {
    "NUMBA_THREADING_LAYER": "workqueue",
    "JAX_PLATFORMS": "cpu",
    "PYTHONWARNINGS": "ignore",
    "OPENBLAS_THREAD_TIMEOUT": "18",  # or they spin into others' calls
}


ALL = "cpu"
_DRAWN = ("random", "types")  # other rows in each run
_COUNTED = ("TENSORLANG_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main() -> None:
    """Parse the arguments, measure, write."""
    given = _arguments()
    given.seed = secrets.randbelow(1 << 16) if given.seed is None else given.seed
    given.out = given.out or _RESULTS / targets.host().cpu
    if given.threads:
        _stay_on(given.threads)
        json.dump(_measured(given), sys.stdout)
        return
    every = os.cpu_count() or 1
    whole = given.table in ("beside", "model", "opencl")
    usual = [every] if whole else sorted({1, every})
    counts = [int(n) for n in given.counts.split(",")] if given.counts else usual
    runs = [_in_process(count, given) for count in counts]
    given.out.mkdir(parents=True, exist_ok=True)
    shown = _page_of_all(runs, given) if given.table == ALL else _page(runs, given)
    (given.out / f"{given.table}.md").write_text(shown)
    print(shown)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    tables = (
        ALL,
        "batches",
        "beside",
        "defaults",
        "exports",
        "model",
        "networks",
        "opencl",
        "operators",
        "random",
        "searching",
        "suite",
        "tuned",
        "types",
    )
    parser.add_argument("table", nargs="?", default=ALL, choices=tables)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="works whose name contains this")
    parser.add_argument("--budget", type=float, help="seconds to tune each shape")
    parser.add_argument("--seed", type=int, help="of what is drawn at random")
    parser.add_argument("--counts", default="", help="thread counts, such as 1,2")
    parser.add_argument("--threads", type=int, help="measure here, print JSON")
    parser.add_argument("--out", type=Path, help="default: results/bench/MACHINE")
    return parser.parse_args()


def _measured(given: argparse.Namespace) -> dict[str, Any]:
    """Measure one thread count in this process."""
    if given.table == ALL:
        from benchmarks.measure import measure

        return measure(given.threads, given.rounds, given.only)
    from benchmarks.side_tables import measured

    rows = measured(
        given.table,
        given.rounds,
        given.only,
        given.budget,
        given.out,
        given.threads,
        given.seed,
    )
    made: dict[str, Any] = {"threads": given.threads, "rows": rows}
    if given.table in _DRAWN:
        made["seed"] = given.seed
    if given.table == "operators":
        from benchmarks.ceilings import ceilings
        from benchmarks.measure import plain

        made["limits"] = plain(ceilings(given.threads))
    return made


def _page(runs: list[dict[str, Any]], given: argparse.Namespace) -> str:
    """Write the measurements of a side table; return its page."""
    from benchmarks import side_tables

    found = side_tables.merged(given.table, given.out, runs, _machine())
    if given.table not in _DRAWN:
        kept = given.out / f"{given.table}.json"
        kept.write_text(json.dumps(found, indent=1) + "\n")
    return side_tables.markdown(given.table, found)


def _page_of_all(runs: list[dict[str, Any]], given: argparse.Namespace) -> str:
    """Write measurements and plots of the main table; return its page."""
    found: dict[str, Any] = {"machine": _machine(), "runs": runs}
    kept = given.out / "cpu.json"
    if given.only and kept.exists():
        found = _renewed(json.loads(kept.read_text()), found)
    if not given.only:
        from benchmarks.overheads import overheads

        found["overheads"] = overheads()
    kept.write_text(json.dumps(found, indent=1) + "\n")
    _draw(found, given.out)
    return markdown(found)


def _renewed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Old measurements updated with new ones."""
    fresh = {run["threads"]: run for run in new["runs"]}
    for run in old["runs"]:
        again = fresh.pop(run["threads"], None)
        if again is not None:
            rows = {row["work"]: row for row in (*run["rows"], *again["rows"])}
            run |= {"limits": again["limits"], "rows": list(rows.values())}
    return {**old, **new, "runs": [*old["runs"], *fresh.values()]}


def _stay_on(threads: int) -> None:
    """Pin this process to this many processors, the only way to limit JAX's threads."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[-threads:])


def _draw(found: dict[str, Any], folder: Path) -> None:
    """Draw the plots if matplotlib is installed."""
    from benchmarks.plots import draw

    try:
        draw(found, folder)
    except ImportError as problem:
        print(f"no plots: {problem} (it is in the bench extra)", file=sys.stderr)


def _in_process(threads: int, given: argparse.Namespace) -> dict[str, Any]:
    counted = dict.fromkeys(_COUNTED, str(threads))
    environment = os.environ | _QUIET | counted
    options = ["--threads", str(threads), "--rounds", str(given.rounds)]
    options += ["--only", given.only, "--seed", str(given.seed)]
    if given.budget is not None:
        options += ["--budget", str(given.budget)]
    options += ["--out", str(given.out)]
    command = [sys.executable, "-m", "benchmarks", given.table, *options]
    done = subprocess.run(  # noqa: S603 - this module
        command, env=environment, stdout=subprocess.PIPE, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _machine() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"device": str(targets.host()), "fingerprint": targets.host().fingerprint}
    for package in (
        "tensorlang",
        "numpy",
        "llvmlite",
        "jax",
        "torch",
        "onnxruntime",
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
