"""`tlang machine`: what this machine can do, as published and as measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tensorlang import lazy
from tensorlang import machine as machines
from tensorlang.cli import console, document
from tensorlang.cli.quantities import Bytes, Seconds
from tensorlang.errors import ArgumentError
from tensorlang.machine import Machine

with lazy.modules(__name__):  # loads LLVM
    from tensorlang.tuner.limits import probe as probes


app = typer.Typer(add_completion=False)


@app.command()
def machine(
    *,
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure this machine (again).")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Show the machine that a file describes."),
    ] = None,
) -> None:
    """Show the rates, latencies, caches and memory of this CPU.

    Numbers are published by the system (or usual for the architecture) until they are
    measured: by --probe, or by the first tlang tune. --file shows another machine, such
    as one written by --json.

    Examples:
        tlang machine
        tlang machine --probe
        tlang machine --json > node7.json
        tlang machine --file node7.json
    """
    if probe and file:
        raise ArgumentError("--probe measures this machine: leave out --file")
    if probe:
        machines.keep(probes.probe())
    shown = machines.load(file) if file else machines.here()
    if document.wanted():
        document.replace(shown.to_json())
        return
    console.say(f"{shown.name} ({shown.device})")
    console.table(("what", "value", "from"), _rows(shown))


def _rows(m: Machine) -> list[tuple[str, str, str]]:
    rows = [
        ("cores", f"{m.cores}, {_count(m.threads_per_core, 'thread')} each", "cores"),
        ("clock", f"{m.clock / 1e9:.2f} GHz", "clock"),
        (
            "vectors",
            f"{m.vector_registers} registers of {m.vector_bytes} bytes",
            "vectors",
        ),
    ]
    for known in m.instructions:
        cycles = f", latency {known.latency * m.clock:.1f} cycles"
        text = f"{known.rate / 1e9:.4g} G/s" + (cycles if known.latency else "")
        rows.append((name := f"{known.kind} {known.dtype}", text, name))
    rows.append(("scaling", f"{m.scaling:.2f} times one core", "scaling"))
    for held in m.caches:
        text = f"{Bytes(held.bytes)} for {_count(held.shared_by, 'core')}, "
        text += f"{_count(held.ways, 'way')}, {_bandwidth(held.bandwidth)}"
        rows.append((f"L{held.level}", text, f"L{held.level}"))
    one, all_ = m.memory_bandwidth, m.memory_bandwidth_all
    rows += [
        ("memory", str(Bytes(m.memory_bytes)), "memory_bytes"),
        ("  one core", _bandwidth(one), "memory_bandwidth"),
        ("  all cores", _bandwidth(all_), "memory_bandwidth_all"),
        ("waking a worker", str(Seconds(m.wake)), "wake"),
    ]
    kinds = ("published", "measured")
    return [(what, text, kinds[name in m.measured]) for what, text, name in rows]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _bandwidth(rate: float) -> str:
    return f"{rate / 1e9:.4g} GB/s"
