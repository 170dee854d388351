"""`tlang show`: an operator at each stage from definition to machine code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final

import typer

from tensorlang import runtime
from tensorlang.cli import completion, configuration, console, document, options
from tensorlang.cli.contests import RECORD, named
from tensorlang.codegen.short_names import as_shown
from tensorlang.codegen.shown_schedule import simplified_schedule
from tensorlang.errors import ArgumentError
from tensorlang.ir import show as printed
from tensorlang.ops import Operator
from tensorlang.targets import Target
from tensorlang.workload import Workload

app = typer.Typer(add_completion=False)


@dataclass
class View:
    """An operator and workload, scheduled and built on demand."""

    op: Operator
    workload: Workload
    target: Target
    asked: str = RECORD

    @cached_property
    def chosen(self) -> configuration.Chosen:
        """The configuration: that which a call would run, unless another is named."""
        return named(self.asked, self.op, self.workload, self.target)

    @cached_property
    def kernel(self) -> Any:
        """The built kernel, of the target's class."""
        knobs = self.chosen.knobs.values
        return runtime.build(self.chosen.schedule, self.target, knobs=knobs)


def _knobs(view: View) -> str:
    """The value and domain of each knob, one per line."""
    knobs = view.chosen.knobs
    lines = [f"# {view.chosen.algorithm}; {view.chosen.why}"]
    lines += [
        f"{name} = {knobs.values[name]!r}  # {domain}"
        for name, domain in knobs.domains.items()
    ]
    return "\n".join(lines)


_Stages = dict[str, tuple[str, str, Callable[[View], str]]]

# stage -> (description, language for highlighting, text)
STAGES: Final[_Stages] = {
    "ir": (
        "the definition",
        "python",
        lambda v: printed(v.op.function(v.workload, v.chosen.algorithm)),
    ),
    "knobs": ("the knobs of its schedule", "python", _knobs),
    "trace": (
        "the steps of its schedule",
        "python",
        lambda v: v.chosen.schedule.annotated_trace(),
    ),
    "scheduled": (
        "the IR after scheduling",
        "python",
        lambda v: printed(as_shown(simplified_schedule(v.chosen.schedule.function))),
    ),
    "lowered": (
        "the input of code generation",
        "python",
        lambda v: printed(as_shown(v.kernel.lowered)),
    ),
    "source": ("the source that was compiled", "llvm", lambda v: v.kernel.source),
    "asm": ("machine instructions", "gas", lambda v: v.kernel.asm),
}
_C: Final[_Stages] = {
    **{name: stage for name, stage in STAGES.items() if name != "asm"},
    "source": ("the source that was compiled", "c", lambda v: v.kernel.source),
}
_CUDA: Final[_Stages] = {
    **_C,
    "ptx": ("NVIDIA's portable assembly", "gas", lambda v: v.kernel.ptx),
    "sass": ("the GPU's instructions", "gas", lambda v: v.kernel.asm),
}
OF_KIND: Final = {"llvm": STAGES, "opencl": _C, "cuda": _CUDA}
_NAMES: Final = ", ".join([*STAGES, "ptx", "sass"])


def _stages(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The stages of the target that was named, for the shell to complete."""
    kind = (ctx.params.get("target") or "llvm").partition(":")[0]
    stages = OF_KIND.get(kind, STAGES).items()
    return [
        (name, about) for name, (about, *_) in stages if name.startswith(incomplete)
    ]


@app.command()
def show(
    op: options.Name,
    *,
    target: options.TargetName = None,
    shape: options.Shape = None,
    dtype: options.DType = None,
    attr: options.Attribute = None,
    stage: Annotated[
        str,
        typer.Option(
            metavar="STAGE", help=f"One of: {_NAMES}.", autocompletion=_stages
        ),
    ] = "",
    knobs: Annotated[
        str,
        typer.Option(
            metavar="KNOBS",
            help="Instead of what a call would run: default, knob=value,... or "
            "algorithm(knob=value, ...).",
            autocompletion=completion.configurations,
        ),
    ] = RECORD,
) -> None:
    """Show an operator at a stage from definition to machine code.

    Without --stage, shows the definition. The text is highlighted on a terminal and
    plain when piped. CUDA needs no GPU: without one it is shown for cuda:sm_90a. On a
    page, with the lines of all stages linked: tlang explore.

    Examples:
        tlang show softmax
        tlang show dense --shape 64x784,512x784 --stage trace
        tlang show conv2d --stage knobs --dtype bf16
        tlang show dense --knobs rows=4,vectors=2 --stage scheduled
        tlang show random.bits --target cuda --stage ptx
    """
    chosen = options.to_compile(target)
    stages = OF_KIND[chosen.kind]
    if stage and stage not in stages:
        raise ArgumentError(
            f"{stage!r} is not a stage for {chosen.kind}; the stages are "
            f"{', '.join(stages)}"
        )
    found = options.operator(op)
    view = View(found, options.workload(found, shape, dtype, attr), chosen, knobs)
    _, lexer, text = stages[stage or "ir"]
    document.found("workload", view.workload)
    document.found("stage", stage or "ir")
    console.code(text(view), lexer)
