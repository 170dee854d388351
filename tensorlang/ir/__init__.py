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
from tensorlang.ir.frontend import (
    ReduceAxis,
    Reduction,
    Tensor,
    argmax,
    argmin,
    compute,
    function,
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
from tensorlang.ir.intrinsics import intrinsic
from tensorlang.ir.nodes import (
    Buffer,
    Const,
    Expr,
    Function,
    Stmt,
    Var,
    as_expr,
)
from tensorlang.ir.nodes import Bitcast as bitcast  # noqa: N813 - reads as a call
from tensorlang.ir.nodes import Cast as cast  # noqa: N813 - reads as a call
from tensorlang.ir.nodes import Select as select  # noqa: N813 - reads as a call

if TYPE_CHECKING:
    from tensorlang.ir.interpreter import run
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

_HOME: Final = {
    "parse": "parser",
    "run": "interpreter",
    "show": "printer",
    "simplify_function": "simplify",
    "verify": "verifier",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tensorlang.ir.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tensorlang.ir' has no attribute {name!r}")
