"""Given configurations compared: `tlang tune --compare`, `tlang records explain`."""

from __future__ import annotations

from statistics import median
from typing import Final

from tensorlang import lazy
from tensorlang.cli import configuration, console, document
from tensorlang.cli.quantities import Seconds, Unlike
from tensorlang.errors import TuningError
from tensorlang.ir.digest import digest
from tensorlang.ops import Operator
from tensorlang.ops.kernels import building
from tensorlang.scheduling import Knobs
from tensorlang.targets import Target
from tensorlang.workload import Workload

with lazy.modules(__name__):  # Optuna is slow to import
    from tensorlang.tuner.search import contest as contests
    from tensorlang.tuner.search import space as spaces
    from tensorlang.tuner.static import tuning as static_tuning
    from tensorlang.tuner.workers import protocol


DEFAULT: Final = "default"
RECORD: Final = "record"


def compare_two(
    op: Operator,
    workload: Workload,
    target: Target,
    texts: tuple[str, str],
    budget: float | None,
) -> None:
    """Time two configurations against each other, and print which is faster.

    Args:
        target: The machine.
        texts: The configurations.
        budget: Seconds for waiting until no other process measures.

    Raises:
        TuningError: one of them is not correct.
    """
    if RECORD in texts:
        chosen = configuration.choose(op, workload, target)
        if DEFAULT in texts and _is_default(chosen, op, workload, target):
            console.say(op.described(workload))
            console.say("  a call runs the default: there is nothing to compare")
            document.found("workload", workload)
            document.found("ratio", None)
            return
        held = protocol.Candidate(chosen.algorithm, chosen.knobs.values)
        texts = tuple(str(held) if t == RECORD else t for t in texts)  # type: ignore[assignment]
    candidates, found = contests.compare(op, workload, target, texts, budget)
    console.say(op.described(workload))
    document.found("workload", workload)
    for name, candidate in zip("AB", candidates, strict=True):
        if why := found.failed.get(candidate.key):
            raise TuningError(f"{candidate}: {why}")
        seconds = median(found.samples[candidate.key])
        console.paragraph(f"{name}: {Seconds(seconds)}, {candidate}", "  ")
        document.found(name, {"candidate": candidate, "seconds": seconds})
    ratio = found.gain(*candidates)
    if ratio is not None:
        document.found("ratio", ratio.median)
        document.found("interval", (ratio.low, ratio.high))
    if ratio is None or ratio.low <= 1 <= ratio.high:
        console.say(f"neither is faster: A takes {ratio} of B's time")
    else:
        slower, faster = candidates if ratio.low > 1 else candidates[::-1]
        better = "B" if faster == candidates[1] else "A"
        console.say(f"{better} is faster by {found.gain(slower, faster)}")
    if found.unlocked:
        console.paragraph(found.unlocked)
    document.found("note", found.unlocked)


def _is_default(
    chosen: configuration.Chosen, op: Operator, workload: Workload, target: Target
) -> bool:
    """Whether the code of a configuration is that of the default."""
    default, _ = building.default(op, workload, target, {})
    return digest(chosen.schedule.function) == digest(default.function)


def named(
    text: str, op: Operator, workload: Workload, target: Target
) -> configuration.Chosen:
    """The configuration that a text of `--compare` names, scheduled.

    Raises:
        ArgumentError: it names none.
    """
    if text == RECORD:
        return configuration.choose(op, workload, target)
    found = contests.given(text, spaces.Space(op, workload, target))
    knobs = Knobs(pinned=found.knobs)
    made = building.schedule(op, workload, target, found.algorithm, knobs)
    return configuration.Chosen(made, found.algorithm, knobs, text)


def explain_gain(
    op: Operator, workload: Workload, target: Target, chosen: configuration.Chosen
) -> None:
    """Measure and print what each knob of a configuration gives.

    Raises:
        TargetError: there is no device to measure on.
    """
    target = static_tuning.machine(target)
    candidate = protocol.Candidate(chosen.algorithm, chosen.knobs.values)
    whole, effects = contests.effects(op, workload, target, candidate)
    if not effects:
        console.say("it is the default")
        return
    console.paragraph(
        f"the default takes {whole} of its time; with one knob at its default and all "
        "else equal, it takes:"
    )
    rows = [
        (
            effect.knob,
            Unlike(str(effect.default), effect.default),
            Unlike(str(effect.value), effect.value),
            effect.gain or effect.note,
        )
        for effect in effects
    ]
    head = ("knob", "default", "chosen", "with the default")
    console.table(head, rows, name="gains")
