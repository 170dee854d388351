"""The cost model of contractions: its ranking of random candidates against their times.

For each workload, candidates are drawn at random from the space of the default
algorithm, built and timed interleaved, with the default configuration among them. A
rank correlation of 1 means that the model orders them as they are; that of a model that
knows nothing is about 0.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.defaults import Shapes, call
from tensorlang import runtime, targets
from tensorlang.ops import find
from tensorlang.ops.spec.examples import arguments
from tensorlang.scheduling import Knobs
from tensorlang.scheduling.knobs import Value
from tensorlang.tuner.measurement.rounds import interleaved
from tensorlang.tuner.search.ranking import values_of
from tensorlang.tuner.workers.protocol import Candidate
from tensorlang.tuner.workers.scheduler import LocalScheduler

COUNT: Final = 30  # candidates of a workload
CORRELATION: Final = 0.7
WITHIN: Final = 1.1  # of the time of the fastest
HEAD: Final = f"""\
The model of contractions

{COUNT} candidates at random of each workload, built and timed in turn. Wanted: a rank
correlation of predicted and measured times of at least {CORRELATION}, and a default
within {100 * (WITHIN - 1):.0f} % of the fastest."""
_MOST_DRAWN: Final = 40  # draws for each candidate: most combinations are not legal
_DENSE: Final = (
    (1024, 1024, 1024),
    (64, 512, 784),
    (200, 1500, 1100),
    (96, 640, 900),
    (16, 10, 784),
    (33, 257, 129),
    (3000, 100, 100),
    (384, 30, 3072),
)
_BATCHED: Final = ((8, 256, 256, 256), (12, 77, 77, 40))
# operator and shapes
WORKS: Final[dict[str, tuple[str, Shapes]]] = {
    **{f"dense {m}x{n}x{k}": ("nn.dense", ((m, k), (n, k))) for m, n, k in _DENSE},
    **{
        f"matmul {b}x{m}x{n}x{k}": ("math.matmul", ((b, m, k), (b, k, n)))
        for b, m, n, k in _BATCHED
    },
}


def rows(rounds: int, only: str, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each workload whose title contains `only`."""
    for title, (name, shapes) in WORKS.items():
        if only in title:
            print(title, file=sys.stderr)
            yield {"work": title, "seed": seed} | _row(name, shapes, rounds, seed)


def _row(name: str, shapes: Shapes, rounds: int, seed: int) -> dict[str, Any]:
    """Predicted and measured times; the default's come first.

    The least of all samples counts: what disturbs a busy machine only adds to a time.
    """
    op, target = find(name), targets.get(None)
    workload = op.workload(*shapes, threads=target.threads)
    arrays, scalars = arguments(op, workload)
    algorithm = op.prefers(workload)
    scheduler, calls = LocalScheduler(op, workload, target), {}
    drawn: dict[str, dict[str, Value]] = {}
    for knobs in _candidates(scheduler, algorithm, seed):
        key = Candidate(algorithm, knobs).key
        kernel = runtime.build(scheduler.recent[key], target)
        drawn[key], calls[key] = knobs, call(kernel, [*arrays, *scalars])
    timings = interleaved(calls, rounds=rounds, min_sample=0.002, warm_up=0.01)
    return {
        "knobs": list(drawn.values()),
        "predicted": scheduler.predict(algorithm, list(drawn.values())),
        "seconds": [min(timings[key].samples) for key in drawn],
    }


def _candidates(
    scheduler: LocalScheduler, algorithm: str, seed: int
) -> Iterator[dict[str, Value]]:
    """The default and different legal candidates, just scheduled."""
    knobs, generator = Knobs(), random.Random(seed)  # noqa: S311 - of candidates
    seen = {scheduler.schedule(algorithm, knobs).ir}
    yield knobs.values
    domains = dict(knobs.domains)
    for _ in range(COUNT * _MOST_DRAWN):
        if len(seen) > COUNT:
            return
        wanted = {k: generator.choice(values_of(d)) for k, d in domains.items()}
        knobs = Knobs(pinned=wanted)
        made = scheduler.schedule(algorithm, knobs)
        domains |= knobs.domains
        if made.outcome is None and made.ir not in seen:
            seen.add(made.ir)
            yield knobs.values


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's coefficient, with the mean rank of equal values."""
    ranks = [_ranks(np.asarray(each)) for each in (left, right)]
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]


def page(run: Mapping[str, Any]) -> Iterator[str]:
    """The correlation by workload, and what the default loses."""
    yield "| work | candidates | rank correlation | default / fastest | its time, us |"
    yield "|---|---|---|---|---|"
    correlations, losses = [], []
    for row in run["rows"]:
        seconds, predicted = row["seconds"], row["predicted"]
        correlations.append(rank_correlation(predicted[1:], seconds[1:]))
        losses.append(seconds[0] / min(seconds))
        yield (
            f"| {row['work']} | {len(seconds) - 1} | {correlations[-1]:.2f} | "
            f"{losses[-1]:.2f} | {seconds[0] * 1e6:.1f} |"
        )
    if losses:
        near = sum(loss <= WITHIN for loss in losses)
        yield ""
        yield (
            f"Mean rank correlation {statistics.mean(correlations):.2f}, least "
            f"{min(correlations):.2f}; the default is within "
            f"{100 * (WITHIN - 1):.0f} % of the fastest in {near} of {len(losses)} "
            f"workloads, {math.exp(statistics.mean(map(math.log, losses))):.2f}x of it "
            "in the geometric mean."
        )
