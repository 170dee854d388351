"""Search beside busy processes, and contradict what is recorded: `--searches 50`.

Each search tunes a workload within a short budget while other processes keep the
processors busy. The defaults of some can be beaten by known margins (`beatable`). A win
that it records is measured eight more times against the default, interleaved, in a
process of its own each. It is contradicted if seven of the eight find the default
faster: by chance, that happens to one of 28 ties. The exit status is 1 if any is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

RUNS = 8
CONTRADICTED = 7  # runs in which the default is faster
# operator, shapes, dtype
WORKLOADS: tuple[tuple[str, list[tuple[int, ...]], str], ...] = (
    ("beatable:far", [(3000,)], "u32"),
    ("beatable:near", [(3000,)], "u32"),
    ("beatable:even", [(3000,)], "u32"),
    ("beatable:behind", [(3000,)], "u32"),
    ("beatable:best", [(3000,)], "u32"),
    ("nn.gelu", [(64, 1000)], "f32"),
    ("nn.softmax", [(128, 501)], "f32"),
    ("nn.layer_norm", [(64, 768), (768,), (768,)], "f32"),
    ("math.sum", [(300, 1100)], "f32"),
    ("nn.dense", [(33, 129), (65, 129), (65,)], "f32"),
    ("math.exp", [(70_000,)], "f32"),
    ("math.matmul", [(48, 96), (96, 80)], "f32"),
    ("random.bits", [(50_000,)], "u32"),
    ("math.max", [(150, 700)], "f32"),
    ("transpose", [(200, 333)], "f32"),
)
SEARCH = """
import json, sys
from tensorlang.tuner import tune

op, shapes, dtype, storage, seed, budget = json.loads(sys.argv[1])
shapes = [tuple(shape) for shape in shapes]
(report,) = tune(op, shapes=shapes, dtypes=dtype, storage=storage, seed=seed,
                 budget=budget)
ratio = report.ratio and [report.ratio.median, report.ratio.low, report.ratio.high]
print(json.dumps({"best": str(report.best), "ratio": ratio, "trials": report.trials,
                  "recorded": report.record is not None, "note": report.note}))
"""
AGAIN = """
import json, sys
from tensorlang import targets
from tensorlang.ops import find
from tensorlang.ops.kernels.requests import requested
from tensorlang.tuner.search.contest import compare

op, shapes, dtype, best = json.loads(sys.argv[1])
host = targets.host()
shapes = [tuple(shape) for shape in shapes]
workload = requested(find(op), shapes, dtype, {}, threads=host.threads)
(default, best), found = compare(find(op), workload, host, ["default", best])
gain = found.gain(default, best)
print(json.dumps(gain and gain.median))
"""


def told(script: str, environment: dict[str, str], *arguments: object) -> Any:
    """What a script prints as JSON; None if it ends with an error."""
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Some busy processes meanwhile."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def search(number: int, budget: float) -> Counter[str]:
    """One search, and what later runs say of its win."""
    op, shapes, dtype = WORKLOADS[number % len(WORKLOADS)]
    with tempfile.TemporaryDirectory(prefix="wins-") as name:
        folder = Path(name)
        environment = os.environ | {
            "TENSORLANG_RECORDS": str(folder / "records"),
            "TENSORLANG_MACHINE": "published",
            "XDG_DATA_HOME": str(folder / "data"),
            "PYTHONPATH": str(Path(__file__).parent),
        }
        storage, seed = f"sqlite:///{folder / 'trials.db'}", number // len(WORKLOADS)
        found = told(SEARCH, environment, op, shapes, dtype, storage, seed, budget)
        if found is None:
            return Counter({"searches that failed": 1})
        print(number, op, json.dumps(found), flush=True)
        if found["ratio"] is None or not found["recorded"]:
            return Counter({"the default stands, or nothing was compared": 1})
        gains = [told(AGAIN, environment, op, shapes, dtype, found["best"])
                 for _ in range(RUNS)]  # fmt: skip
    known = [gain for gain in gains if gain is not None]
    print(number, "again:", *(f"{gain:.3f}" for gain in known), flush=True)
    slower = sum(gain < 1 for gain in known)
    counted = Counter({"wins recorded": 1, "runs of them": len(known)})
    counted["wins contradicted"] += slower >= CONTRADICTED
    counted["wins below 1 in the median of the runs"] += median(known or [0.0]) < 1
    return counted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of each")
    parser.add_argument("--busy", type=int, default=2, help="processes beside it")
    options = parser.parse_args()
    counted, begun = Counter[str](), time.monotonic()
    numbers = range(options.first, options.first + options.searches)
    with busy(options.busy), suppress(KeyboardInterrupt):
        for number in numbers:
            counted += search(number, options.budget)
    for what, count in counted.items():
        print(f"{count:6} {what}")
    print(f"{counted['wins contradicted']:6} wins contradicted, in "
          f"{time.monotonic() - begun:.0f} s")  # fmt: skip
    return 1 if counted["wins contradicted"] else 0


if __name__ == "__main__":
    sys.exit(main())
