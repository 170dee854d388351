"""`tlang bench`: an operator beside what people would use instead, in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tensorlang import runtime, targets
from tensorlang.cli import choosing, console, options
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.ops.examples import arguments
from tensorlang.tuner.comparison import PEERS, Call, Side, checked, opposite, ours
from tensorlang.tuner.rounds import Timing, interleaved, paired_ratio
from tensorlang.tuner.timers import timer_of

if TYPE_CHECKING:
    from tensorlang.ops import Operator
    from tensorlang.runtime import Kernel
    from tensorlang.workload import Workload

app = typer.Typer(add_completion=False)

_OURS = {False: "tensorlang, into existing", True: "tensorlang, fresh"}


@app.command()
def bench(
    op: options.Name,
    *,
    shape: options.Shape = None,
    dtype: options.DType = None,
    attr: options.Attribute = None,
    target: options.TargetName = None,
    vs: Annotated[
        str,
        typer.Option(metavar="PEERS", help=f"Of {', '.join(PEERS)}; commas between."),
    ] = "",
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Ours, and theirs where they can.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", help="How often each is timed, interleaved.")
    ] = 11,
) -> None:
    """Measure an operator: interleaved rounds, medians, ratios with their interval.

    Peers that write into existing arrays are compared with ours doing the same, peers
    that return fresh arrays with ours returning fresh ones.
    """
    names = checked([name.strip() for name in vs.split(",") if name.strip()])
    if rounds < 1:
        raise ArgumentError(f"--rounds {rounds}: at least one is needed")
    machine = targets.get(target)
    if machine.index < 0:
        raise TargetError(f"{machine.name} is compiled for, not here to be measured")
    machine = machine if threads is None else machine.with_threads(threads)
    found = options.operator(op)
    workload = options.workload(found, shape, dtype, attr)
    if machine.kind == "cuda" and names:
        raise ArgumentError(
            f"--vs {vs}: what others make of a GPU is measured by make bench-gpu"
        )
    sides = [opposite(name, found, workload, machine.threads) for name in names]
    made = choosing.choose(found, workload, machine)
    kernel = runtime.build(made.schedule, machine)
    if machine.kind == "cuda":
        calls = {_OURS[False]: _on_gpu(kernel, found, workload)}
        timings = timer_of(machine).against(calls, rounds)
    else:
        mine = ours(kernel, found, workload)
        kinds = {side.fresh for side in sides} or {False}
        calls = {_OURS[fresh]: mine[fresh] for fresh in sorted(kinds)}
        timings = interleaved(calls | {s.name: s.call for s in sides}, rounds=rounds)
    console.say(f"{workload} on {machine}: {made.why}")
    rows = [_row(name, timings[name]) for name in calls]
    rows += [_row(s.name, timings[s.name], timings[_OURS[s.fresh]], s) for s in sides]
    head = ("", "time", "spread", "over ours", "95 % interval", "its result")
    console.table(head, rows)


def _on_gpu(kernel: Kernel, op: Operator, workload: Workload) -> Call:
    """A call of our kernel whose arrays lie on the GPU."""
    arrays, scalars = arguments(op, workload)
    held = timer_of(kernel.target).arguments([*arrays, *scalars])
    return lambda: kernel.launch(*held)


def _row(
    name: str, timing: Timing, base: Timing | None = None, side: Side | None = None
) -> tuple[str, ...]:
    time, spread = console.duration(timing.median), f"{timing.spread:.1%}"
    if base is None or side is None:
        return name, time, spread, "", "", ""
    ratio = paired_ratio(timing.samples, base.samples)
    kind = "fresh" if side.fresh else "into existing"
    interval = f"{ratio.low:.2f} to {ratio.high:.2f}"
    return name, time, spread, f"{ratio.median:.2f}x", interval, kind
