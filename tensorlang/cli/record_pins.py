"""`tlang records pin` and `unpin`: configurations fixed by hand, in a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tensorlang import lazy, targets
from tensorlang.atomic_files import write_text
from tensorlang.cli import console, document, options
from tensorlang.errors import ArgumentError, TargetError, TensorlangError
from tensorlang.ops import pins

with lazy.modules(__name__):  # these load NumPy
    from tensorlang import ops
    from tensorlang.ops.kernels import building, requests
    from tensorlang.scheduling import knobs as declared

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.scheduling.knobs import Domain, Value
    from tensorlang.targets import Target
    from tensorlang.workload import Workload


def pin(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OP:KNOB=VALUE,...]", help="Without one, the pins are listed."
        ),
    ] = None,
) -> None:
    """Fix knobs of an operator or a family until tlang records unpin.

    algorithm=NAME fixes the algorithm. Other knobs have their defaults, and records are
    passed over. The pins are lines of a file, below those of tensorlang.ops.pin and of
    TENSORLANG_PIN. A knob, value or algorithm that the operator has on no machine, for
    its usual shapes, is refused.

    Examples:
        tlang records pin
        tlang records pin random.bits:lanes=16
        tlang records pin dense:algorithm=direct,rows=8
    """
    if not given:
        rows = list(pins.texts())
        if rows or document.wanted():
            console.table(("pin", "in"), rows, name="pins")
        else:
            console.say("no pins; tlang records pin random.bits:lanes=16 makes one")
        return
    text = " ".join(given)
    parts = list(pins.parsed(text, "the pin"))
    names = {name for name, _, _ in parts}
    if len(names) != 1:
        raise ArgumentError(f"a pin is for one operator or family, not {text!r}")
    _check(next(iter(names)), {knob: value for _, knob, value in parts})
    _write([*_others(*names), text])
    console.say(f"{text} is pinned in {pins.file()}")
    if why := _refusal(*names):
        console.paragraph(f"calls of the usual shapes on this CPU refuse it: {why}")
        document.found("refused", why)
    document.found("pinned", text)
    document.found("file", pins.file())


def _check(name: str, given: Mapping[str, Value]) -> None:
    """Refuse what no operator of a name can take, if all have usual workloads.

    Raises:
        ArgumentError: none has such an algorithm; or none of their schedules for the
            usual workloads, on this CPU and on GPUs, has such a knob, or one with such
            a value.
    """
    members = ops.select(name)
    algorithms = dict.fromkeys(a for op in members for a in op.algorithms)
    if (chosen := given.get(pins.ALGORITHM)) is not None and chosen not in algorithms:
        raise ArgumentError(
            f"{name} has no algorithm {chosen}; it has {', '.join(algorithms)}"
        )
    left = {knob: value for knob, value in given.items() if knob != pins.ALGORITHM}
    try:
        usual = [(op, requests.requested(op, None, None, {})) for op in members]
    except TensorlangError:
        return
    seen: dict[str, Domain] = {}
    for domains in _domains(usual, dict(left)) if left else ():
        seen = domains | seen
        for knob in left.keys() & domains.keys():
            if left[knob] in domains[knob]:
                del left[knob]
        if not left:
            return
    for knob, value in left.items():
        if knob not in seen:
            known = ", ".join(sorted(seen)) or "none"
            raise ArgumentError(f"{name} has no knob {knob}; it has {known}")
        raise ArgumentError(f"{name}: knob {knob!r} is {seen[knob]}, not {value!r}")


def _domains(
    usual: Iterable[tuple[Operator, Workload]], given: Mapping[str, Value]
) -> Iterator[dict[str, Domain]]:
    """The knobs of the usual workloads: by default, with some given, and with others.

    A knob may be asked only where another one is not at its default; each value of
    each choice is tried alone.
    """
    machines = [targets.host(), targets.to_compile("cuda")]
    with suppress(TargetError):
        machines.append(targets.get("opencl"))
    for op, workload in usual:
        for target in machines:
            for algorithm in op.algorithms:
                asked = _asked(op, workload, target, algorithm, {})
                yield asked
                yield _asked(op, workload, target, algorithm, given)
                for knob, domain in asked.items():
                    options = getattr(domain, "options", ())
                    for option in options:
                        other = {knob: option}
                        yield _asked(op, workload, target, algorithm, other)


def _asked(
    op: Operator,
    workload: Workload,
    target: Target,
    algorithm: str,
    values: Mapping[str, Value],
) -> dict[str, Domain]:
    """The knobs that a schedule asks for, up to the step that refuses the values."""
    asked = declared.Knobs(pinned=values)
    with suppress(Exception):  # an algorithm may not be for such arrays
        building.schedule(op, workload, target, algorithm, asked)
    return asked.domains


def _refusal(name: str) -> str:
    """Why no operator of a name takes its pins, for its usual workload on this CPU.

    Other shapes and targets may have other knobs and values.
    """
    refusals = []
    for op in ops.select(name):
        try:
            workload = requests.requested(op, None, None, {})
            building.default(op, workload, targets.host(), pins.pinned(op))
        except TensorlangError as problem:
            refusals.append(str(problem))
        else:
            return ""
    return refusals[0]


def unpin(op: options.Name) -> None:
    """Remove the pins of an operator or a family from the file.

    Examples:
        tlang records unpin random.bits
    """
    held, left = _lines(), _others(op)
    if len(left) == len(held):
        raise ArgumentError(f"{pins.file()} has no pin of {op}")
    _write(left)
    console.say(f"{op} is no longer pinned in {pins.file()}")
    document.found("unpinned", op)
    document.found("file", pins.file())


def _lines() -> list[str]:
    path = pins.file()
    return path.read_text("utf-8").splitlines() if path.exists() else []


def _others(name: str) -> list[str]:
    """The lines that are not of an operator or family."""
    return [line for line in _lines() if line.partition(":")[0].strip() != name]


def _write(lines: list[str]) -> None:
    write_text(pins.file(), "".join(f"{line}\n" for line in lines))
