"""From a workload to its best known kernel: choose, schedule, build.

Tuning records name an algorithm and the knobs of its schedule; without a record, the
schedule's heuristics for shape and machine decide. A record whose knobs no longer give
the recorded IR is stale, and the next best is tried. Pins override both; see `pins`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang import lazy, machine, targets
from tensorlang.errors import ArgumentError, OperatorError, TensorlangError
from tensorlang.frame_room import frame_room
from tensorlang.gc_pause import gc_paused
from tensorlang.ops.algorithms import DIRECT
from tensorlang.ops.kernels import first_miss
from tensorlang.ops.pins import ALGORITHM, pinned, sources
from tensorlang.records import lookup
from tensorlang.runtime import build as build_kernel
from tensorlang.runtime import cached_kernel
from tensorlang.runtime.building import is_cached, name_kernel

with lazy.modules(__name__):  # kernels from the cache need none of these
    from tensorlang import scheduling
    from tensorlang.ir import digest as digests
    from tensorlang.schedules import library

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


@gc_paused()
@frame_room
def build(
    op: Operator, workload: Workload, target: Target | str | None = None
) -> Kernel:
    """The best known kernel for a workload; compiled only if not cached."""
    chosen = targets.get(target)
    key, make = request(op, workload, chosen)
    if not op.in_library:  # the key omits the definition's source
        return build_kernel(make(), chosen)
    first_miss.missed(key, chosen)
    return cached_kernel(key, make, chosen)


def file_name(
    op: Operator, workload: Workload, target: Target | str | None, kernel: Kernel | None
) -> None:
    """Note on disk that a kernel, built for another workload, serves this one, too."""
    if kernel is not None and op.in_library:
        chosen = targets.get(target)
        name_kernel(request(op, workload, chosen)[0], kernel, chosen)


def is_built(op: Operator, workload: Workload, target: Target) -> bool:
    """Whether the best known kernel for a workload is in memory or on disk."""
    return is_cached(request(op, workload, target)[0], target)


def request(
    op: Operator, workload: Workload, target: Target, *, constants: Collection[int] = ()
) -> tuple[str, Callable[[], Schedule]]:
    """The cache key of the best known kernel, and a function to schedule it.

    The key does not name positions of constant arrays: those of its parts do.
    """
    known = [choice.record for choice in lookup(workload, target)]
    pins = pinned(op)
    configured = [[record.algorithm, record.ir] for record in known]
    found = machine.edition() if target.model == "cpu" else ""
    key = json.dumps([workload.to_json(), configured, pins, found], sort_keys=True)
    return key, lambda: scheduled(
        op, workload, target, known, pins, constants=constants
    )


def scheduled(
    op: Operator,
    workload: Workload,
    target: Target,
    known: Sequence[Record],
    pins: Mapping[str, object],
    *,
    constants: Collection[int] = (),
) -> Schedule:
    """The schedule of the first record that is not stale, else the default."""
    return chosen(op, workload, target, known, pins, constants=constants)[1]


def chosen(
    op: Operator,
    workload: Workload,
    target: Target,
    known: Sequence[Record],
    pins: Mapping[str, object],
    *,
    constants: Collection[int] = (),
) -> tuple[str, Schedule]:
    """The algorithm and schedule of `scheduled`."""
    for record in () if pins else known:
        made = replayed(op, record, workload, target)
        if not isinstance(made, str):
            return record.algorithm, made[0]
    name, _ = _algorithm(op, workload, target, pins, constants=constants)
    return name, default(op, workload, target, pins, constants=constants)[0]


def best(
    op: Operator, workload: Workload, target: Target, constants: Collection[int] = ()
) -> tuple[str, Schedule]:
    """The algorithm and schedule of the best known kernel."""
    known = [choice.record for choice in lookup(workload, target)]
    return chosen(op, workload, target, known, pinned(op), constants=constants)


def default(
    op: Operator,
    workload: Workload,
    target: Target,
    pins: Mapping[str, Any],
    *,
    constants: Collection[int] = (),
) -> tuple[Schedule, Knobs]:
    """The schedule by heuristics, with some knobs pinned, and arrays constant.

    Raises:
        ArgumentError: the operator has no such algorithm, or the schedule no such
            knob, or its value is out of domain.
    """
    algorithm, own = _algorithm(op, workload, target, pins, constants=constants)
    knobs = scheduling.Knobs(pinned=own)
    try:
        made = schedule(op, workload, target, algorithm, knobs)
    except ArgumentError as problem:
        where, _ = sources(op)
        raise ArgumentError(f"{where}: {problem}" if where else problem) from None
    if not knobs.unasked():
        return made, knobs
    where, whole_family = sources(op)
    if not whole_family:  # a pin for a family need not apply to every member
        known = ", ".join(knobs.values) or "none"
        told = (knobs.absent.get(name) for name in knobs.unasked())
        why = "".join(f": {reason}" for reason in told if reason)
        raise ArgumentError(
            f"{where} fixes {', '.join(knobs.unasked())}, which is no knob of "
            f"{op.id}{why}; it has {known}"
        )
    return made, knobs


def _algorithm(
    op: Operator,
    workload: Workload,
    target: Target,
    pins: Mapping[str, Any],
    *,
    constants: Collection[int],
) -> tuple[str, dict[str, Any]]:
    """The algorithm without a record, which may be pinned, and the pinned knobs."""
    own = dict(pins)
    name = own.pop(ALGORITHM, None)
    if name is None:
        return preferred(op, workload, target, constants=constants), own
    found = op.algorithms.get(name)
    if found is None or not found.suits(workload, target.features):
        suits = [
            a.name for a in op.algorithms.values() if a.suits(workload, target.features)
        ]
        raise ArgumentError(
            f"{sources(op)[0]} fixes the algorithm {name}; {op.id} has "
            f"{', '.join(suits)} for these arrays"
        )
    return name, own


def preferred(
    op: Operator, workload: Workload, target: Target, *, constants: Collection[int] = ()
) -> str:
    """The algorithm for a workload without a record, if some arrays are constant.

    An operator's preference applies to CPUs, unless another algorithm is predicted to
    be faster, and to devices where the algorithm has its own schedule. Elsewhere, the
    first algorithm designed for such devices or for a feature of this one is used, or
    else the definition itself.
    """
    name = op.prefers(workload)
    if target.model == "cpu":
        suits = (
            a for a in op.algorithms.values() if a.suits(workload, target.features)
        )
        fast = (a.name for a in suits if a.faster(workload, target, constants))
        return next(fast, name)
    if schedules_of(op, name, target):
        return name
    made_for = (
        a
        for a in op.algorithms.values()
        if a.feature or _only_there(op, a.name, target)
    )
    suiting = (a.name for a in made_for if a.suits(workload, target.features))
    return next(suiting, DIRECT)


def _only_there(op: Operator, name: str, target: Target) -> bool:
    """Whether an algorithm other than the definition has its own schedule here."""
    return name != DIRECT and bool(schedules_of(op, name, target))


def replayed(
    op: Operator, record: Record, workload: Workload, target: Target
) -> tuple[Schedule, Knobs] | str:
    """The schedule of a record's knobs, or the reason why it is stale.

    Staleness is determined on the tuned workload, as IR differs between shapes.
    """

    def made(of: Workload) -> tuple[Schedule, Knobs]:
        knobs = scheduling.Knobs.replay(dict(record.knobs))
        return schedule(op, of, target, record.algorithm, knobs), knobs

    try:
        tuned = made(record.workload)
        if digests.digest(tuned[0].function) != record.ir:
            return (
                f"stale: filed by tensorlang {record.generator}, and its knobs give "
                "other IR now"
            )
        return tuned if workload == record.workload else made(workload)
    except TensorlangError as problem:
        return f"stale: {problem}"
    except KeyError as missing:
        return f"stale: its workload has no {missing}, which {op.id} takes now"
    except Exception as problem:  # noqa: BLE001 - a record may hold anything
        return f"stale: {type(problem).__name__}: {problem}"


@gc_paused()
@frame_room
def schedule(
    op: Operator, workload: Workload, target: Target, algorithm: str, knobs: Knobs
) -> Schedule:
    """A workload's function with its schedule applied, if it has one.

    Raises:
        ScheduleError: a step of the schedule is not legal with these knobs.
        ArgumentError: a knob is out of its domain.
    """
    func = op.function(workload, algorithm)
    entries = schedules(op, algorithm, target)
    if entries:
        return entries[0].run(func, target, knobs)
    return scheduling.Schedule(func, target)


def schedules(op: Operator, algorithm: str, target: Target) -> tuple[Entry, ...]:
    """The schedules of an algorithm on a kind of machine.

    If it has none, the generic schedule, which adapts to the shapes of the stages.
    """
    own = schedules_of(op, algorithm, target)
    return own or library.schedules_for(GENERIC, model=target.model)


def schedules_of(op: Operator, algorithm: str, target: Target) -> tuple[Entry, ...]:
    """The schedules of an operator's own family, if any.

    Raises:
        OperatorError: it names a family that has no schedules on any machine.
    """
    found = library.schedules_for(op.scheduled_as, algorithm, target.model)
    if not found and op.scheduled_as and not library.schedules_for(op.scheduled_as):
        families = {entry.family for entry in library.SCHEDULES.values()}
        raise OperatorError(
            f"{op.id}: no schedule is registered for {op.scheduled_as!r}; there are "
            f"schedules for {', '.join(sorted(families))}"
        )
    return found


def is_of_other_machines(op: Operator, name: str, target: Target) -> bool:
    """Whether an algorithm has schedules, but none for this kind of machine."""
    models = {entry.model for entry in library.schedules_for(op.scheduled_as, name)}
    return name != DIRECT and bool(models) and target.model not in models
