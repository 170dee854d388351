"""The explorer's page: one HTML file that fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2
from markupsafe import Markup

from tensorlang.codegen.short_names import short_names
from tensorlang.codegen.shown_schedule import simplified_schedule
from tensorlang.explorer.choices import comparisons
from tensorlang.explorer.loop_table import bytes_of, loops_of, sizes_of
from tensorlang.explorer.machine_code import mix
from tensorlang.explorer.roofline import roofline
from tensorlang.explorer.stages import Stage, stages_of
from tensorlang.explorer.summary import summary
from tensorlang.frozen import frozen
from tensorlang.highlighting import highlighted, style_sheets
from tensorlang.ir.text.printer import show
from tensorlang.machine.limits import Limits, limits_of

if TYPE_CHECKING:
    from tensorlang.explorer.search import Search
    from tensorlang.ir.nodes import Function
    from tensorlang.runtime.kernel import Kernel
    from tensorlang.scheduling.knobs import Knobs
    from tensorlang.scheduling.schedule import Schedule

_MOST_MIXED: Final = 8  # kinds of instructions
_MOST_LINES: Final = 3000  # of a stage that is shown from the beginning, for speed
_PART_LINES: Final = 100  # that a browser lays out together, when they come into view
_CONTEXT: Final = 2  # unchanged lines around a difference
# JSON in a script element: nothing in it may look like a tag
_ESCAPES: Final = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


@frozen
class Subject:
    """What a page shows: a configuration of an operator, built."""

    title: str  # workload and target
    why: str  # where the configuration comes from
    definition: Function  # operator's definition
    schedule: Schedule
    kernel: Kernel  # kernel built from it
    knobs: Knobs  # its knobs, with what was compared for their defaults
    sizes: Mapping[str, int]  # values of its symbolic sizes
    # seconds of a call by the record of this workload; 0 without one
    measured: float = 0.0

    @property
    def limits(self) -> Limits:
        """What limits the kernel."""
        target = self.kernel.target
        return limits_of(self.definition, self.sizes, target, self.measured)


@frozen
class Row:
    """A line of a difference: ` `, `-`, `+`, or `…` for lines left out."""

    kind: str
    html: Markup


@frozen
class Change:
    """A step of a schedule, and how the IR differs after it."""

    step: str
    rows: Sequence[Row]
    declined: Sequence[str]


def page(
    subject: Subject, other: Subject | None = None, search: Search | None = None
) -> str:
    """The page of a configuration, how it differs from another, and its search."""
    stages = stages_of(subject.definition, subject.schedule, subject.kernel)
    before = stages_of(other.definition, other.schedule, other.kernel) if other else []
    template = _environment().get_template("page.html.j2")
    limits, sizes = subject.limits, sizes_of(subject.definition, subject.sizes)
    params, function = subject.definition.params, subject.schedule.function
    rows, kernel = loops_of(function, subject.sizes), subject.kernel
    shown = short_names(simplified_schedule(function))
    compared = comparisons(subject.knobs)
    return template.render(
        subject=subject,
        limits=limits,
        summary=summary(
            function,
            kernel.lowered,
            rows,
            limits,
            subject.knobs,
            compared=compared,
            search=search,
            shown=shown,
        ),
        compared=compared,
        part_lines=_PART_LINES,
        long={each.name for each in stages if len(each.lines) > _MOST_LINES},
        roofline=roofline(limits),
        params=[(each, bytes_of(each.buffer, sizes)) for each in params],
        loops=[replace(each, name=shown.get(each.name, each.name)) for each in rows],
        stages=[(stage, _highlighted(stage.lines, stage.language)) for stage in stages],
        changes=changes(subject.definition, subject.schedule),
        other=other,
        search=search,
        differences=differences(before, stages) if other else [],
        facts=_facts([*([(other, before)] if other else []), (subject, stages)]),
        styles=style_sheets(),
        data=json.dumps(links(stages), separators=(",", ":")).translate(_ESCAPES),
    )


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _highlighted(lines: Sequence[str], language: str) -> list[Markup]:
    """Lines as HTML."""
    return [Markup(line) for line in highlighted(lines, language)]  # noqa: S704 - escaped


def _facts(subjects: Sequence[tuple[Subject, Sequence[Stage]]]) -> dict[str, list[str]]:
    """What is known of kernels as a whole, by name: a value for each of them."""
    known = [
        {name.replace("_", " "): f"{n:,}" for name, n in each.kernel.resources.items()}
        | {
            f"instructions, {stage.title}": ", ".join(
                f"{count:,} {name}" for name, count in found[:_MOST_MIXED]
            )
            for stage in stages
            if (found := mix(stage.name, stage.lines))
        }
        | {name: repr(value) for name, value in each.kernel.artifact.knobs.items()}
        for each, stages in subjects
    ]
    names = dict.fromkeys(name for each in known for name in each)
    return {name: [each.get(name, "") for each in known] for name in names}


def differences(
    before: Iterable[Stage], stages: Iterable[Stage]
) -> list[tuple[Stage, list[Row]]]:
    """How each stage differs from the same one of another configuration."""
    lines = {stage.name: stage.lines for stage in before}
    return [
        (stage, difference(lines[stage.name], stage.lines, stage.language))
        for stage in stages
    ]


def changes(definition: Function, schedule: Schedule) -> list[Change]:
    """The steps of a schedule as differences of the IR."""
    found = []
    function, before = definition, show(definition).splitlines()
    for at, step in enumerate(schedule.trace):
        function, _ = step.apply(function)
        after = show(function).splitlines()
        declined = [str(each) for each in schedule.declined if each.after == at]
        found.append(Change(str(step), difference(before, after), declined))
        before = after
    return found


def difference(
    before: Sequence[str], after: Sequence[str], language: str = "python"
) -> list[Row]:
    """The lines that differ between two texts, with some around them."""
    old, new = _highlighted(before, language), _highlighted(after, language)
    rows: list[Row] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        if rows or group[0][1]:
            rows.append(Row("…", Markup("")))
        for kind, i, i_end, j, j_end in group:
            if kind == "equal":
                rows += [Row(" ", line) for line in old[i:i_end]]
            else:
                rows += [Row("-", line) for line in old[i:i_end]]
                rows += [Row("+", line) for line in new[j:j_end]]
    return rows


def links(stages: Iterable[Stage]) -> Mapping[str, object]:
    """What links the lines, as numbers.

    Tags are numbered in order of appearance, and so are the sets of them that lines
    have: most lines share theirs with others. Machine code has all that its source
    lines have.
    """
    numbers: dict[str, int] = {}
    sets: dict[frozenset[str], int] = {}

    def numbered(tags: frozenset[str]) -> int:
        return sets.setdefault(tags, len(sets))

    made: dict[str, dict[str, list[object]]] = {}
    for stage in stages:
        made[stage.name] = {"sources": list(stage.sources)}
        if stage.name == "source" or not stage.sources:
            made[stage.name] |= {
                "own": [numbered(tags.own) for tags in stage.tags],
                "around": [numbered(tags.around) for tags in stage.tags],
                "statements": list(stage.statements),
            }
    found = [[numbers.setdefault(t, len(numbers)) for t in sorted(s)] for s in sets]
    return {"stages": made, "sets": found, "tags": list(numbers)}
