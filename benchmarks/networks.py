"""Whole networks against onnxruntime and PyTorch, from ONNX files.

Each network is timed interleaved with its peers in one process, whose threads rest
before each sample; on all threads also alone, in processes that take turns. First calls
are from loading the file to the first result, cold with an empty cache of kernels.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.network_works import Inputs, works
from tensorlang import targets
from tensorlang.cli.network_peers import network_peer
from tensorlang.layers import Model
from tensorlang.runtime import cache
from tensorlang.tuner.measurement.rounds import interleaved, paired_ratio

FLOOR: Final = 0.8
LIMIT: Final = 1e-4
TOLERANCE: Final = 2.0**-12
HEAD: Final = f"""\
Whole networks

ONNX files of networks with random weights, batch 1 unless said, f32, with defaults.
Ratios are the peer's time over ours: interleaved in one process, and alone, each in
processes of its own that take turns; wanted of onnxruntime's: a geometric mean of at
least 1.0, no row below {FLOOR}. `torch` is eager. Results differ from onnxruntime's by
at most {LIMIT} of the largest magnitude. `within` is onnxruntime's time over ours with
`Model.load(path, tolerance={TOLERANCE:.2g})`: an error of each f32 product that admits
Winograd's algorithms. The first call is from loading the file to the first result:
cold, with an empty cache of kernels, and warm. Worst first."""
OURS: Final = {"ours": None, "within": TOLERANCE}
PEERS: Final = ("onnxruntime", "torch")
COMPILED: Final = ("resnet18", "gpt2")  # by torch.compile, too
FOLDER: Final = Path(__file__).parents[1] / "build" / "networks"
_TURNS: Final = 2
_SECONDS: Final = 0.5  # of calls in a process of its own
_REST: Final = 0.05  # seconds, in which a peer's spinning threads go to sleep
Call = Callable[[], tuple[np.ndarray[Any, Any], ...]]


def rows(rounds: int, only: str, threads: int) -> Iterator[dict[str, Any]]:
    """A row for the network of this name, or for each whose name contains `only`."""
    every_work = works()
    for title, make in every_work.items():
        if title == only or (only not in every_work and only in title):
            print(f"{threads} threads: {title}", file=sys.stderr)
            path, inputs = _in_process(make, FOLDER)
            every = threads == targets.host().threads == os.cpu_count()
            compiled = ("torch.compile",) if every and title in COMPILED else ()
            given = path, inputs, threads, PEERS + compiled, rounds
            row = {"work": title} | _in_process(_compared, *given)
            yield row | (_alone(path, inputs, threads) if every else {})


def _in_process(call: Callable[..., Any], *given: object) -> Any:
    """What a call gives in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(call, given)


def _loaded(name: str, path: Path, inputs: Inputs, threads: int) -> Call:
    if name not in OURS:
        return network_peer(name)(path, inputs, threads)
    model = Model.load(path, train=False, tolerance=OURS[name])

    def run() -> tuple[np.ndarray[Any, Any], ...]:
        made = model(*inputs.values())
        return made if isinstance(made, tuple) else (made,)

    return run


def _first(
    name: str, path: Path, inputs: Inputs, threads: int
) -> tuple[Call, float, tuple[np.ndarray[Any, Any], ...]]:
    """A call, the seconds until its first result, and this."""
    began = time.perf_counter()
    call = _loaded(name, path, inputs, threads)
    made = call()
    return call, time.perf_counter() - began, made


def _compared(
    path: Path, inputs: Inputs, threads: int, peers: tuple[str, ...], rounds: int
) -> dict[str, Any]:
    """Seconds of all, timed in turn, and the ratios of the peers' to ours."""
    calls, seconds, results = {}, {}, {}
    for name in (*OURS, *peers):
        given = path, inputs, threads
        calls[name], seconds[name], results[name] = _first(name, *given)
    for name in OURS:
        _check(results[name], results["onnxruntime"])
    timings = interleaved(
        calls, rounds=rounds, min_sample=0.01, warm_up=0.05, rest=_REST
    )
    ratios = {
        name: paired_ratio(timings[name].samples, timings["ours"].samples)
        for name in peers
    }
    exact, fast = (timings[name].samples for name in ("onnxruntime", "within"))
    ratios["within"] = paired_ratio(exact, fast)
    return {
        "seconds": {name: timing.median for name, timing in timings.items()},
        "ratios": {name: [r.median, r.low, r.high] for name, r in ratios.items()},
        "loading": seconds,
    }


def _check(
    ours: tuple[np.ndarray[Any, Any], ...], wanted: tuple[np.ndarray[Any, Any], ...]
) -> None:
    for a, b in zip(ours, wanted, strict=True):
        wide = b.astype(np.float64)
        error = np.abs(a - wide).max() / max(np.abs(wide).max(), 1e-30)
        if a.shape != b.shape or not error <= LIMIT:
            raise AssertionError(f"differs by {error:.1e} of the largest magnitude")


def _alone(path: Path, inputs: Inputs, threads: int) -> dict[str, Any]:
    """Seconds of ours and of onnxruntime in turns, and those of ours first calls."""
    found: dict[str, list[float]] = {"ours": [], "onnxruntime": []}
    first = {}
    with TemporaryDirectory() as folder:
        for turn in range(_TURNS):
            for name, kept in found.items():
                given = name, path, inputs, threads, folder
                began, median = _in_process(_by_itself, *given)
                kept.append(median)
                if name == "ours":
                    first["warm" if turn else "cold"] = began
    alone = {name: min(several) for name, several in found.items()}
    return {"alone": alone, "first": first}


def _by_itself(
    name: str, path: Path, inputs: Inputs, threads: int, folder: str
) -> tuple[float, float]:
    """Seconds of the first call, with a cache in a folder, and of later ones."""
    os.environ[cache.VARIABLE] = folder
    call, began, _ = _first(name, path, inputs, threads)
    samples, end = [], time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return began, statistics.median(samples)


def page(run: Mapping[str, Any]) -> Iterator[str]:
    """The geometric means by peer, then every row, worst first."""
    found = sorted(run["rows"], key=lambda row: row["ratios"]["onnxruntime"][0])
    several = {
        name: [row["ratios"][name][0] for row in found if name in row["ratios"]]
        for name in (*PEERS, "torch.compile", "within")
    }
    several["onnxruntime, alone"] = [_alone_ratio(r) for r in found if "alone" in r]
    yield "| peer | networks | geometric mean | least |"
    yield "|---|---|---|---|"
    for name, ratios in several.items():
        if ratios:
            mean = statistics.geometric_mean(ratios)
            yield f"| {name} | {len(ratios)} | {mean:.2f} | {min(ratios):.2f} |"
    yield ""
    every = any("alone" in row for row in found)
    more = " alone | torch.compile | first call cold, s | warm, s |" if every else ""
    yield f"| network | ours, ms | onnxruntime | interval | within | torch |{more}"
    yield "|---|---|---|---|---|---|" + "---|---|---|---|" * every
    for row in found:
        ratios = row["ratios"]
        median, low, high = ratios["onnxruntime"]
        below = ", below" if median < FLOOR else ""
        yield (
            f"| {row['work']} | {row['seconds']['ours'] * 1e3:.2f} | "
            f"{median:.2f}{below} | {low:.2f} to {high:.2f} | "
            f"{_ratio(row, 'within')} | {_ratio(row, 'torch')} |"
            + (_more(row) if every else "")
        )


def _more(row: Mapping[str, Any]) -> str:
    """The cells that only runs on all threads have."""
    first, compiled = row["first"], _ratio(row, "torch.compile")
    return (
        f" {_alone_ratio(row):.2f} | {compiled} | {first['cold']:.1f} | "
        f"{first['warm']:.2f} |"
    )


def _ratio(row: Mapping[str, Any], name: str) -> str:
    """The cell of a ratio; empty if it was not measured."""
    found = row["ratios"].get(name)
    return f"{found[0]:.2f}" if found else ""


def _alone_ratio(row: Mapping[str, Any]) -> float:
    ratio: float = row["alone"]["onnxruntime"] / row["alone"]["ours"]
    return ratio
