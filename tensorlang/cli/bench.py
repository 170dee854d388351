"""`tlang bench`: an operator or a network against other libraries in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tensorlang import runtime, targets
from tensorlang.cli import configuration, console, document, options
from tensorlang.cli.bench_network import bench_network
from tensorlang.cli.network_peers import NETWORK_PEERS
from tensorlang.cli.quantities import Interval, Seconds, Share, Times
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.ops.spec.examples import arguments
from tensorlang.tuner.measurement.rounds import Timing, interleaved, paired_ratio
from tensorlang.tuner.measurement.timers import timer_of
from tensorlang.tuner.peers.comparison import (
    PEERS,
    Call,
    Side,
    checked,
    our_calls,
    peer_side,
)

if TYPE_CHECKING:
    from tensorlang.ops import Operator
    from tensorlang.runtime import Kernel
    from tensorlang.workload import Workload

app = typer.Typer(add_completion=False)

_OURS = {False: "tensorlang, into existing", True: "tensorlang, fresh"}


@app.command()
def bench(
    op: options.OptionalName = None,
    *,
    model: options.ModelFile = None,
    batch: options.Batch = None,
    tolerance: options.Tolerance = None,
    shape: options.Shape = None,
    dtype: options.DType = None,
    attr: options.Attribute = None,
    target: options.TargetName = None,
    vs: Annotated[
        str,
        typer.Option(
            metavar="PEERS",
            help=f"Comma-separated, of {', '.join(PEERS)}; for a model, of "
            f"{', '.join(NETWORK_PEERS)}, which reads the exported net.pt2 beside it.",
        ),
    ] = "",
    threads: Annotated[
        int | None,
        typer.Option(metavar="N", help="Threads, of peers too where possible."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", help="Interleaved timings of each side.")
    ] = 11,
) -> None:
    """Measure an operator or an ONNX file: interleaved rounds, medians, ratios.

    Peers that write into existing arrays are compared with our `out=` calls, peers that
    allocate their results with our allocating calls. For a network, a table says how
    long each of its layers takes, and the time of the first call is that with loading.

    Examples:
        tlang bench dense --shape 64x784,512x784
        tlang bench random.normal --vs numpy,jax --threads 1
        tlang bench --model network.onnx --batch 8 --vs onnxruntime
    """
    names = [name.strip() for name in vs.split(",") if name.strip()]
    if rounds < 1:
        raise ArgumentError(f"--rounds {rounds}: at least one is needed")
    machine = targets.get(target)
    if machine.index < 0:
        raise TargetError(f"{machine.name} can only be compiled for here, not measured")
    machine = machine if threads is None else machine.with_threads(threads)
    if model is not None:
        if op is not None or shape or dtype or attr:
            raise ArgumentError(
                "--model measures a whole network: leave out OP, --shape, --dtype and "
                "--attr"
            )
        bench_network(model, batch, machine, names, rounds, tolerance=tolerance)
        return
    options.of_models(tolerance)
    if op is None:
        raise ArgumentError("name an operator to measure, or a network with --model")
    checked(names)
    found = options.operator(op)
    workload = options.workload(found, shape, dtype, attr)
    if machine.kind == "cuda" and names:
        raise ArgumentError(
            f"--vs {vs}: use make bench-gpu to compare with peers on a GPU"
        )
    sides = [peer_side(name, found, workload, machine.threads) for name in names]
    made = configuration.choose(found, workload, machine)
    kernel = runtime.build(made.schedule, machine)
    if machine.kind == "cuda":
        calls = {_OURS[False]: _on_gpu(kernel, found, workload)}
        timings = timer_of(machine).against(calls, rounds)
    else:
        mine = our_calls(kernel, found, workload)
        kinds = {side.fresh for side in sides} or {False}
        calls = {_OURS[fresh]: mine[fresh] for fresh in sorted(kinds)}
        timings = interleaved(calls | {s.name: s.call for s in sides}, rounds=rounds)
    console.paragraph(f"{workload} on {machine}: {made.why}")
    document.found("workload", workload)
    document.found("machine", machine.fingerprint)
    rows = [_row(name, timings[name]) for name in calls]
    rows += [_row(s.name, timings[s.name], timings[_OURS[s.fresh]], s) for s in sides]
    head = ("", "time", "spread", "over ours", "95 % interval", "its result")
    console.table(head, rows, name="sides")


def _on_gpu(kernel: Kernel, op: Operator, workload: Workload) -> Call:
    """A call of our kernel with arrays on the GPU."""
    arrays, scalars = arguments(op, workload)
    held = timer_of(kernel.target).arguments([*arrays, *scalars])
    return lambda: kernel.launch(*held)


def _row(
    name: str, timing: Timing, base: Timing | None = None, side: Side | None = None
) -> tuple[object, ...]:
    time, spread = Seconds(timing.median), Share(timing.spread)
    if base is None or side is None:
        return name, time, spread, None, None, None
    ratio = paired_ratio(timing.samples, base.samples)
    kind = "fresh" if side.fresh else "into existing"
    interval = Interval((ratio.low, ratio.high))
    return name, time, spread, Times(ratio.median), interval, kind
