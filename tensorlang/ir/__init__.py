"""Floor 1, the IR: nodes, text, simplifier, verifier, interpreter, definitions.

`nodes` is the grammar and its meaning; `frontend` writes definitions in
tensor-expression style; `show` and `parse` are its text; `run` executes any function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir.dtypes import (
    DType,
    as_dtype,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)

if TYPE_CHECKING:
    from tensorlang.ir.assembly import function
    from tensorlang.ir.frontend import (
        ReduceAxis,
        Reduction,
        Tensor,
        argmax,
        argmin,
        compute,
        max,
        min,
        named,
        placeholder,
        prod,
        reduce_axis,
        reduction,
        scalar,
        size,
        sum,
    )
    from tensorlang.ir.interpreter import run
    from tensorlang.ir.intrinsics import intrinsic
    from tensorlang.ir.nodes import Bitcast as bitcast  # noqa: N813 - reads as a call
    from tensorlang.ir.nodes import (
        Buffer,
        Const,
        Expr,
        Function,
        Stmt,
        Var,
        as_expr,
    )
    from tensorlang.ir.nodes import Cast as cast  # noqa: N813 - reads as a call
    from tensorlang.ir.nodes import Select as select  # noqa: N813 - reads as a call
    from tensorlang.ir.parser import parse
    from tensorlang.ir.printer import show
    from tensorlang.ir.simplify import simplify_function
    from tensorlang.ir.verifier import verify

__all__ = [
    "Buffer",
    "Const",
    "DType",
    "Expr",
    "Function",
    "ReduceAxis",
    "Reduction",
    "Stmt",
    "Tensor",
    "Var",
    "argmax",
    "argmin",
    "as_dtype",
    "as_expr",
    "bf16",
    "bitcast",
    "boolean",
    "cast",
    "compute",
    "f16",
    "f32",
    "f64",
    "function",
    "i8",
    "i16",
    "i32",
    "i64",
    "intrinsic",
    "max",
    "min",
    "named",
    "parse",
    "placeholder",
    "prod",
    "reduce_axis",
    "reduction",
    "run",
    "scalar",
    "select",
    "show",
    "simplify_function",
    "size",
    "sum",
    "u8",
    "u16",
    "u32",
    "u64",
    "verify",
]

_MODULES: Final = ("frontend", "intrinsics", "nodes", "reducers", "visit")
# what is loaded at its first use: a process that only calls kernels needs none of it
_FRONTEND: Final = (
    "ReduceAxis", "Reduction", "Tensor", "argmax", "argmin", "compute",
    "max", "min", "named", "placeholder", "prod", "reduce_axis", "reduction", "scalar",
    "size", "sum",
)  # fmt: skip
_NODES: Final = {
    **{n: n for n in ("Buffer", "Const", "Expr", "Function", "Stmt", "Var", "as_expr")},
    "bitcast": "Bitcast",
    "cast": "Cast",
    "select": "Select",
}
_HOME: Final[dict[str, tuple[str, str]]] = {
    **{name: ("frontend", name) for name in _FRONTEND},
    **{name: ("nodes", attribute) for name, attribute in _NODES.items()},
    "function": ("assembly", "function"),
    "intrinsic": ("intrinsics", "intrinsic"),
    "parse": ("parser", "parse"),
    "run": ("interpreter", "run"),
    "show": ("printer", "show"),
    "simplify_function": ("simplify", "simplify_function"),
    "verify": ("verifier", "verify"),
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"tensorlang.ir.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'tensorlang.ir' has no attribute {name!r}")
    module, attribute = _HOME[name]
    value = getattr(import_module(f"tensorlang.ir.{module}"), attribute)
    globals()[name] = value
    return value
