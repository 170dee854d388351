"""From a workload to a kernel: what is known to be best, scheduled, built.

Records name an algorithm and the knobs of its schedule; without one the schedule's own
rule over shape and machine decides. A record whose knobs give other IR than when it was
filed is stale, and the next best is asked. `TENSORLANG_PIN=op:knob=value,...` overrides
knobs by hand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang import targets
from tensorlang.collecting import uncollected
from tensorlang.errors import ArgumentError, OperatorError, TensorlangError
from tensorlang.ops import ahead
from tensorlang.ops.operator import DIRECT
from tensorlang.records import lookup
from tensorlang.runtime import build as build_kernel
from tensorlang.runtime import cached_kernel

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.record_files import Record
    from tensorlang.runtime import Kernel
    from tensorlang.scheduling.knobs import Knobs
    from tensorlang.scheduling.registry import Entry
    from tensorlang.scheduling.schedule import Schedule
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

GENERIC: Final = "generic"
PIN_VARIABLE: Final = "TENSORLANG_PIN"
_WORDS: Final = {"true": True, "false": False}


@uncollected()
def build(
    op: Operator, workload: Workload, target: Target | str | None = None
) -> Kernel:
    """The best known kernel for a workload; compiled only where no cache has it."""
    chosen = targets.get(target)
    key, make = request(op, workload, chosen)
    if not in_caches(op):
        return build_kernel(make(), chosen)
    ahead.missed(key, chosen)
    return cached_kernel(key, make, chosen)


def in_caches(op: Operator) -> bool:
    """Whether its kernels are kept by name: the source of others is in no key."""
    return op.module.startswith("tensorlang.")


def request(
    op: Operator, workload: Workload, target: Target
) -> tuple[str, Callable[[], Schedule]]:
    """What the best known kernel is called in caches, and how it is scheduled."""
    known = [choice.record for choice in lookup(workload, target)]
    pins = pinned(op)
    configured = [[record.algorithm, record.ir] for record in known]
    key = json.dumps([workload.to_json(), configured, pins], sort_keys=True)
    return key, lambda: scheduled(op, workload, target, known, pins)


def scheduled(
    op: Operator,
    workload: Workload,
    target: Target,
    known: Sequence[Record],
    pins: Mapping[str, Any],
) -> Schedule:
    """The schedule of the first record that is not stale, else the default's."""
    for record in () if pins else known:
        made = replayed(op, record, workload, target)
        if not isinstance(made, str):
            return made[0]
    return default(op, workload, target, pins)[0]


def default(
    op: Operator, workload: Workload, target: Target, pins: Mapping[str, Any]
) -> tuple[Schedule, Knobs]:
    """The schedule of the default rule, with some knobs pinned.

    Raises:
        ArgumentError: a pinned knob is none of the schedule's, or out of its domain.
    """
    from tensorlang.scheduling.knobs import Knobs  # noqa: PLC0415 - not when warm

    knobs = Knobs(pinned=pins)
    made = schedule(op, workload, target, preferred(op, workload, target), knobs)
    names = {name for name, _, _ in _pins()}
    whole_family = bool(op.family) and op.family in names
    if knobs.unasked() and not whole_family:  # of a family, some members have it
        known = ", ".join(knobs.values) or "none"
        raise ArgumentError(
            f"{PIN_VARIABLE} fixes {', '.join(knobs.unasked())}, which is no knob of "
            f"{op.id}; it has {known}"
        )
    return made, knobs


def preferred(op: Operator, workload: Workload, target: Target) -> str:
    """The algorithm for a workload of which no record is known.

    What an operator prefers is known of processors; on other devices it is the
    definition itself, unless the other one has a schedule of its own there, or another
    one is made for such devices, or for what this one has.
    """
    name = op.prefers(workload)
    if target.model == "cpu" or schedules_of(op, name, target):
        return name
    made_for = (
        a
        for a in op.algorithms.values()
        if a.feature or _only_there(op, a.name, target)
    )
    suiting = (a.name for a in made_for if a.suits(workload, target.features))
    return next(suiting, DIRECT)


def _only_there(op: Operator, name: str, target: Target) -> bool:
    """Whether an algorithm has a schedule of its own on a kind of machine."""
    return name != DIRECT and bool(schedules_of(op, name, target))


def replayed(
    op: Operator, record: Record, workload: Workload, target: Target
) -> tuple[Schedule, Knobs] | str:
    """The schedule that a record's knobs give, or in words why it is stale.

    Staleness is judged on the workload that was tuned: another shape has other IR.
    """
    from tensorlang.ir.digest import digest  # noqa: PLC0415 - not when warm
    from tensorlang.scheduling.knobs import Knobs  # noqa: PLC0415 - not when warm

    def made(of: Workload) -> tuple[Schedule, Knobs]:
        knobs = Knobs.replay(dict(record.knobs))
        return schedule(op, of, target, record.algorithm, knobs), knobs

    try:
        tuned = made(record.workload)
        if digest(tuned[0].function) != record.ir:
            return (
                f"stale: filed by tensorlang {record.generator}, and its knobs give "
                "other IR now"
            )
        return tuned if workload == record.workload else made(workload)
    except TensorlangError as problem:
        return f"stale: {problem}"
    except Exception as problem:  # noqa: BLE001 - a record may hold anything
        return f"stale: {type(problem).__name__}: {problem}"


@uncollected()
def schedule(
    op: Operator, workload: Workload, target: Target, algorithm: str, knobs: Knobs
) -> Schedule:
    """A workload's function with its schedule applied, or bare where it has none.

    Raises:
        ScheduleError: a step of the schedule is not legal with these knobs.
        ArgumentError: a knob is out of its domain.
    """
    from tensorlang.scheduling.schedule import Schedule  # noqa: PLC0415 - not when warm

    func = op.function(workload, algorithm)
    entries = schedules(op, algorithm, target)
    return entries[0].run(func, target, knobs) if entries else Schedule(func, target)


def schedules(op: Operator, algorithm: str, target: Target) -> tuple[Entry, ...]:
    """The schedules that an algorithm of an operator has on a kind of machine.

    Where it has none, the generic one, which goes by the shapes of its stages.
    """
    from tensorlang.scheduling.registry import schedules_for  # noqa: PLC0415

    own = schedules_of(op, algorithm, target)
    return own or schedules_for(GENERIC, model=target.model)


def schedules_of(op: Operator, algorithm: str, target: Target) -> tuple[Entry, ...]:
    """The schedules of an operator's own family, of which there may be none."""
    import tensorlang.schedules  # noqa: F401, PLC0415 - fills the table; not when warm
    from tensorlang.scheduling.registry import schedules_for  # noqa: PLC0415

    return schedules_for(op.scheduled_as, algorithm, target.model)


def is_of_other_machines(op: Operator, name: str, target: Target) -> bool:
    """Whether an algorithm has schedules, and none of them for such a machine."""
    import tensorlang.schedules  # noqa: F401, PLC0415 - fills the table; not when warm
    from tensorlang.scheduling.registry import schedules_for  # noqa: PLC0415

    models = {entry.model for entry in schedules_for(op.scheduled_as, name)}
    return name != DIRECT and bool(models) and target.model not in models


def pinned(op: Operator) -> dict[str, Any]:
    """The knobs that `TENSORLANG_PIN` fixes for an operator.

    Raises:
        ArgumentError: the variable is not of the form `op:knob=value,knob=value`.
    """
    found: dict[str, Any] = {}
    own = {op.id, *op.aliases, op.family} - {""}
    for name, knob, value in _pins():
        if name in own:
            found[knob] = _value(value)
        else:
            _known(name)
    return found


def _pins() -> Iterator[tuple[str, str, str]]:
    """The operator or family, the knob and its value of each pin."""
    name = ""
    for part in filter(None, os.environ.get(PIN_VARIABLE, "").split(",")):
        head, _, rest = part.rpartition(":")
        name = head or name
        knob, equals, value = rest.partition("=")
        if not (name and knob and equals):
            raise ArgumentError(
                f"{PIN_VARIABLE}={part!r} is not op:knob=value; for example "
                "random.bits:lanes=32,unroll=2"
            )
        yield name, knob.strip(), value.strip()


def _known(name: str) -> None:
    """Refuse a pinned name that no operator or family has."""
    from tensorlang.ops.registry import select  # noqa: PLC0415 - only where pinned

    try:
        select(name)
    except OperatorError as problem:
        raise ArgumentError(f"{PIN_VARIABLE} names no operator: {problem}") from None


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return int(text)
    except ValueError:
        return text
