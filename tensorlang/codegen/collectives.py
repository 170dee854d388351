"""Check collectives against the target's features and the operands' layouts."""

from __future__ import annotations

from tensorlang.codegen.hopper.lower import refuse_roles
from tensorlang.errors import CodegenError
from tensorlang.ir.collectives import COLLECTIVES, collectives_in
from tensorlang.ir.contents import contents
from tensorlang.ir.gpu_natives import GPU_NATIVES
from tensorlang.ir.nodes import Call, Function, Load, Ramp
from tensorlang.ir.visit import nodes_of
from tensorlang.targets import Target


def refuse_missing(function: Function, target: Target) -> None:
    """Check that a target has every collective of a function, and its approximations.

    Raises:
        CodegenError: it lacks one; schedules check `target.features` first.
    """
    refuse_roles(function, target)
    for entry in collectives_in(function.body):
        if entry.feature not in target.features:
            raise CodegenError(
                f"{entry.name} is a {entry.scope} collective, which {target} does not "
                f"support: it lacks {entry.feature!r}; schedule it as plain loops"
            )
    missing = contents(function.body).calls & GPU_NATIVES.keys()
    if missing and target.kind != "cuda":
        raise CodegenError(
            f"{', '.join(sorted(missing))}: an instruction of CUDA GPUs, which "
            f"{target} lacks; call the exact function"
        )


def check_rows(function: Function) -> None:
    """Check that each matrix row that a warp loads is 16 contiguous shared bytes.

    Raises:
        CodegenError: it is in another scope, or not known to be contiguous.
    """
    for node in nodes_of(function.body, Call):
        if not _loads_rows(node):
            continue
        (row,) = node.args
        assert isinstance(row, Load)
        together = bool(row.indices) and isinstance(row.indices[0], Ramp)
        if row.buffer.scope != "shared" or not together:
            raise CodegenError(
                f"{node.name} loads rows of 8 contiguous elements of shared memory, "
                f"and {row!r} of scope {row.buffer.scope!r} is not one; stage a copy "
                "whose layout is contiguous"
            )


def _loads_rows(call: Call) -> bool:
    return call.name in COLLECTIVES and COLLECTIVES[call.name].feature == "ldmatrix"
