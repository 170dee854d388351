"""The comment at the head of generated code: signature, target, knobs."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.ir import nodes as ir
from tensorlang.targets import Target


def header(
    function: ir.Function, target: Target, knobs: Mapping[str, object]
) -> list[str]:
    """Its lines, without comment signs."""
    lines = [f"{function.name}, for {target}"]
    for param in function.params:
        buffer, shape = param.buffer, ", ".join(map(str, param.buffer.shape))
        lines.append(f"  {param.role} {buffer.name}: {buffer.dtype}[{shape}]")
    lines += [f"  {var.name}: {var.dtype}" for var in function.scalars]
    if knobs:
        lines.append(", ".join(f"{k}={v}" for k, v in sorted(knobs.items())))
    return lines
