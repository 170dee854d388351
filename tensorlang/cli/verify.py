"""`tlang verify`: known answers, and kernels against the interpreter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Annotated, Final

import typer

from tensorlang import targets
from tensorlang.cli import completion, configuration, console, document, options
from tensorlang.cli.quantities import Seconds
from tensorlang.errors import TensorlangError
from tensorlang.ops import Operator
from tensorlang.ops import operators as known
from tensorlang.ops.algorithms import DIRECT
from tensorlang.ops.random.verification import GROUPS, Group
from tensorlang.runtime import build
from tensorlang.runtime.cuda import toolchain
from tensorlang.targets import Target
from tensorlang.tuner.correctness.gate import Gates, Wrong
from tensorlang.tuner.search.pruning import overrun
from tensorlang.workload import Workload

app = typer.Typer(add_completion=False)
FAILED: Final = 1


@app.command()
def verify(
    op: Annotated[
        str | None,
        typer.Argument(
            metavar="[OP]",
            help="An operator or a family (default: all).",
            autocompletion=completion.operators,
        ),
    ] = None,
    *,
    shape: options.Shape = None,
    dtype: options.DType = None,
    attr: options.Attribute = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Such as llvm; all for every available target.",
            autocompletion=completion.kinds,
        ),
    ] = None,
) -> None:
    """Check operators against published answers and the interpreter.

    Runs the kernels that a call would run, on small ragged shapes derived from --shape.
    For a GPU that is not present, kernels are only compiled, which is stated. The exit
    code is 1 if any check fails.

    Examples:
        tlang verify dense
        tlang verify dense --shape 64x784,512x784 --dtype bf16
        tlang verify random.bits --target all
    """
    machines = _machines(target)
    chosen = known() if op is None else options.operators(op)
    names = {member.id for member in chosen}
    groups = [group for group in GROUPS if names.intersection(group.operators)]
    given = [options.workload(member, shape, dtype, attr) for member in chosen]
    failures = 0
    for machine in machines:
        absent = machine.index < 0
        console.say(f"{'for' if absent else 'on'} {machine}")
        lines = [(group.name, _answers(group, machine)) for group in groups]
        check, lines = (_compiled, []) if absent else (_comparison, lines)
        for member, workload in zip(chosen, given, strict=True):
            lines.append((member.id, check(member, workload, machine)))
        said = console.tracked(lines, str(machine.name))
        failures += sum(not _line(machine, name, check) for name, check in said)
    if failures:
        console.say(f"{failures} failed")
        raise typer.Exit(FAILED)


def _machines(target: str | None) -> Iterable[Target]:
    """The targets to check; compile-only architectures where there is no GPU."""
    if target != "all":
        return [options.to_compile(target)]
    found = []
    for kind, problem in targets.availability().items():
        if not problem:
            found.append(targets.get(kind))
        elif kind == "cuda" and not toolchain.missing():
            console.say(f"{kind} is compiled only, nothing is run: {problem}")
            found.append(targets.to_compile(kind))
        else:
            console.say(f"skipped {kind}: {problem}")
    return found


Outcome = tuple[str, str]  # what was compared, and the problem or ""


def _line(machine: Target, name: str, check: Callable[[], Outcome]) -> bool:
    """Run a check, print its line, and return whether it passed."""
    start = time.perf_counter()
    try:
        what, problem = check()
    except (TensorlangError, Wrong) as error:
        what, problem = "", f"{error}"
    spent = Seconds(time.perf_counter() - start)
    finding = {"target": machine.name, "check": name, "seconds": spent}
    passed = {"passed": not problem, "compared": what, "problem": problem}
    document.append("checks", finding | passed)
    mark = "FAIL" if problem else "pass"
    console.say(f"  {mark}  {name:<30}  {problem or what}  ({spent})")
    return not problem


def _answers(group: Group, target: Target) -> Callable[[], Outcome]:
    def check() -> Outcome:
        answers = list(group.check(target))
        wrong = [str(answer) for answer in answers if not answer.correct]
        problem = f"{len(wrong)} of {len(answers)}: {wrong[0]}" if wrong else ""
        return f"known answers: {len(answers)}", problem

    return check


def _compiled(
    op: Operator, workload: Workload, target: Target
) -> Callable[[], Outcome]:
    """Compile the kernel that a call would run for an absent device."""

    def check() -> Outcome:
        made = configuration.choose(op, workload, target)
        problem = overrun(build(made.schedule, target))
        return "compiled only, not run", problem

    return check


def _comparison(
    op: Operator, workload: Workload, target: Target
) -> Callable[[], Outcome]:
    """Kernels of small ragged shapes against the interpreter."""

    def check() -> Outcome:
        gates = Gates(op, workload)
        cases = gates.of(DIRECT).nonempty
        runs = 0
        for number, case in enumerate(cases):
            made = configuration.choose(op, case.workload, target)
            gate = gates.of(made.algorithm)
            gate.check(build(made.schedule, target), gate.nonempty[number])
            runs += len(gate.nonempty[number].runs)
        return (
            f"matches the interpreter: {len(cases)} shapes, {runs} sets of arrays",
            "",
        )

    return check
