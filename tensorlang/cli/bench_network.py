"""`tlang bench --model`: a network against others, and where its time goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang import onnx
from tensorlang.cli import console, document
from tensorlang.cli.network_peers import Arrays, Results, Run, network_peer
from tensorlang.cli.quantities import Interval, Seconds, Share, Times
from tensorlang.cli.tune_network import sizes_of
from tensorlang.graph import Value
from tensorlang.graph.execution.layer_times import LayerTime, layer_times
from tensorlang.graph.networks.context import Context
from tensorlang.graph.specs import at_sizes
from tensorlang.graph.values import values_in
from tensorlang.layers import Model
from tensorlang.tuner.measurement.rounds import interleaved, paired_ratio

if TYPE_CHECKING:
    from tensorlang.graph import Node, TensorSpec
    from tensorlang.targets import Target

_OURS: Final = "tensorlang"
_REST: Final = 0.05  # seconds, in which a peer's spinning threads go to sleep
_MOST: Final = 20  # rows of the table by layer


def bench_network(
    path: Path,
    batch: int | None,
    target: Target,
    peers: Sequence[str],
    rounds: int,
    *,
    tolerance: float | None = None,
) -> None:
    """Time a network, with random inputs, and each of its layers; print both tables.

    Raises:
        ArgumentError: there is no such peer, its package or file is missing, or a size
            remains symbolic.
    """
    loads = {name: network_peer(name) for name in peers}
    read = onnx.load(path, data=False)
    sizes = sizes_of(path, read.specs, batch)
    given = {
        value.name: _random(spec.at(sizes))
        for value, spec in zip(read.inputs, read.specs, strict=True)
    }
    began = time.perf_counter()
    model = Model.load(path, train=False, tolerance=tolerance)
    model(*given.values())  # a network of these values, where the file needs them
    network = model.network
    runs: dict[str, Run] = {
        _OURS: lambda: _several(network(*given.values(), target=target))
    }
    ours = runs[_OURS]()
    first = {_OURS: time.perf_counter() - began}
    for name, load in loads.items():
        began = time.perf_counter()
        runs[name] = load(path, given, target.threads)
        made = runs[name]()
        first[name] = time.perf_counter() - began
        console.say(said := f"{name}: {_compared(ours, made)}")
        document.append("compared", said)
    timings = interleaved(runs, rounds=rounds, rest=_REST)
    base = timings[_OURS]
    rows = []
    for name, timing in timings.items():
        ratio = paired_ratio(timing.samples, base.samples)
        interval = Interval((ratio.low, ratio.high))
        over = (Times(ratio.median), interval) if name != _OURS else (None, None)
        times = Seconds(timing.median), Share(timing.spread)
        rows.append((name, *times, *over, Seconds(first[name])))
    head = ("", "time", "spread", "over ours", "95 % interval", "load and first call")
    console.table(head, rows, name="sides")
    bound = Context(network, sizes=_sizes(network.specs, given), target=target).bound
    for place, array in zip(bound.inputs, given.values(), strict=False):
        np.copyto(place, array)
    bound()
    _by_layer(layer_times(bound, rounds))


def _sizes(specs: Sequence[TensorSpec], given: Arrays) -> dict[str, int]:
    """The named sizes of these inputs."""
    return {
        str(extent): size
        for spec, array in zip(specs, given.values(), strict=True)
        for extent, size in zip(spec.shape, array.shape, strict=True)
        if not isinstance(extent, int)
    }


def _random(spec: TensorSpec) -> np.ndarray:
    """An input: normal numbers; zeros and ones where it has integers, as any index."""
    draw, shape = np.random.default_rng(0), at_sizes(spec.shape, {})
    if spec.numpy.kind in "iub":
        return draw.integers(0, 2, shape).astype(spec.numpy)
    return draw.normal(size=shape).astype(spec.numpy)


def _several(made: object) -> Results:
    return made if isinstance(made, tuple) else (np.asarray(made),)


def _compared(ours: Results, wanted: Results) -> str:
    """How far the results are from each other, in a sentence."""
    most = 0.0
    for a, b in zip(ours, wanted, strict=True):
        wide = b.astype(np.float64)
        if a.shape == b.shape and a.size:
            error = np.abs(a.astype(np.float64) - wide).max()
            most = max(most, error / max(np.abs(wide).max(), np.finfo(float).tiny))
        elif a.shape != b.shape:
            return f"a result has shape {b.shape}, ours {a.shape}"
    return f"results differ by at most {most:.1e} of the largest magnitude"


def _by_layer(found: Sequence[LayerTime]) -> None:
    """Print the layers that take most of the time, equal ones together."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for each in found:
        times[_described(each.node)].append(each.seconds)
    whole = sum(map(sum, times.values())) or 1.0
    ordered = sorted(times.items(), key=lambda row: -sum(row[1]))
    rows = [_row(*row, whole) for row in ordered[:_MOST]]
    if rest := [time for _, several in ordered[_MOST:] for time in several]:
        rows.append(_row("others", rest, whole))
    console.table(("layer, alone", "times", "in all", "share"), rows, name="layers")


def _row(name: str, seconds: Sequence[float], whole: float) -> tuple[object, ...]:
    spent = sum(seconds)
    return name, len(seconds), Seconds(spent), Share(spent / whole)


def _described(node: Node) -> str:
    """A node's operator, the shapes it reads, and what is fused into it."""
    nest = (node.args, tuple(node.kwargs.values()))
    shapes = [str(each.spec) for each in values_in(nest) if isinstance(each, Value)]
    fused = node.kwargs.get("activation")
    return f"{node.id} {', '.join(shapes)}" + (f", {fused}" if fused else "")
