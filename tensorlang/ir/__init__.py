"""Layer 1, the IR: nodes, text, simplifier, verifier, interpreter, definitions.

`nodes` defines the grammar and its semantics; `frontend` builds definitions in
tensor-expression style; `show` and `parse` convert to and from text; `run` executes any
function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

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
    from tensorlang.ir import extremes, rows
    from tensorlang.ir.adjoint import adjoint
    from tensorlang.ir.assembly import function
    from tensorlang.ir.concatenation import joined
    from tensorlang.ir.derivatives import derivative
    from tensorlang.ir.elementwise import (
        broadcast,
        elements,
        elementwise_tensors,
        stored,
        wide,
    )
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
        reshaped,
        scalar,
        size,
        sum,
    )
    from tensorlang.ir.interpreter import run
    from tensorlang.ir.intrinsics import (
        ceil,
        cos,
        erf,
        erfinv,
        exp,
        exp2,
        expm1,
        floor,
        fma,
        intrinsic,
        isinf,
        isnan,
        log,
        log1p,
        log2,
        maximum,
        minimum,
        pow,
        round,
        sigmoid,
        sin,
        sqrt,
        tanh,
        trunc,
    )
    from tensorlang.ir.nodes import (
        Buffer,
        Const,
        Expr,
        Function,
        Stmt,
        Var,
        as_expr,
        binary,
        bitcast,
        cast,
        select,
        unary,
    )
    from tensorlang.ir.parser import parse
    from tensorlang.ir.printer import show
    from tensorlang.ir.simplify import simplify_function
    from tensorlang.ir.sizes import Size, require
    from tensorlang.ir.verifier import verify

__all__ = [
    "Buffer",
    "Const",
    "DType",
    "Expr",
    "Function",
    "ReduceAxis",
    "Reduction",
    "Size",
    "Stmt",
    "Tensor",
    "Var",
    "adjoint",
    "argmax",
    "argmin",
    "as_dtype",
    "as_expr",
    "bf16",
    "binary",
    "bitcast",
    "boolean",
    "broadcast",
    "cast",
    "ceil",
    "compute",
    "cos",
    "derivative",
    "elements",
    "elementwise_tensors",
    "erf",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "extremes",
    "f16",
    "f32",
    "f64",
    "floor",
    "fma",
    "function",
    "i8",
    "i16",
    "i32",
    "i64",
    "intrinsic",
    "isinf",
    "isnan",
    "joined",
    "log",
    "log1p",
    "log2",
    "max",
    "maximum",
    "min",
    "minimum",
    "named",
    "parse",
    "placeholder",
    "pow",
    "prod",
    "reduce_axis",
    "reduction",
    "require",
    "reshaped",
    "round",
    "rows",
    "run",
    "scalar",
    "select",
    "show",
    "sigmoid",
    "simplify_function",
    "sin",
    "size",
    "sqrt",
    "stored",
    "sum",
    "tanh",
    "trunc",
    "u8",
    "u16",
    "u32",
    "u64",
    "unary",
    "verify",
    "wide",
]

_MODULES: Final = (
    "extremes", "frontend", "intrinsics", "nodes", "reducers", "rows", "visit",
)  # fmt: skip
# imported on first use: a process that only calls kernels needs none of it
_FRONTEND: Final = (
    "ReduceAxis", "Reduction", "Tensor", "argmax", "argmin", "compute",
    "max", "min", "named", "placeholder", "prod", "reduce_axis", "reduction",
    "reshaped", "scalar", "size", "sum",
)  # fmt: skip
_NODES: Final = (
    "Buffer", "Const", "Expr", "Function", "Stmt", "Var", "as_expr", "binary",
    "bitcast", "cast", "select", "unary",
)  # fmt: skip
_INTRINSICS: Final = (
    "ceil", "cos", "erf", "erfinv", "exp", "exp2", "expm1", "floor", "fma", "intrinsic",
    "isinf", "isnan", "log", "log1p", "log2", "maximum", "minimum", "pow", "round",
    "sigmoid", "sin", "sqrt", "tanh", "trunc",
)  # fmt: skip
_ELEMENTWISE: Final = ("broadcast", "elementwise_tensors", "elements", "stored", "wide")
_HOME: Final[dict[str, tuple[str, str]]] = {
    **{name: ("frontend", name) for name in _FRONTEND},
    **{name: ("intrinsics", name) for name in _INTRINSICS},
    **{name: ("nodes", name) for name in _NODES},
    "Size": ("sizes", "Size"),
    "adjoint": ("adjoint", "adjoint"),
    "derivative": ("derivatives", "derivative"),
    "function": ("assembly", "function"),
    "joined": ("concatenation", "joined"),
    **{name: ("elementwise", name) for name in _ELEMENTWISE},
    "require": ("sizes", "require"),
    "parse": ("parser", "parse"),
    "run": ("interpreter", "run"),
    "show": ("printer", "show"),
    "simplify_function": ("simplify", "simplify_function"),
    "verify": ("verifier", "verify"),
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tensorlang.ir.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'tensorlang.ir' has no attribute {name!r}")
    module, attribute = _HOME[name]
    value = getattr(import_module(f"tensorlang.ir.{module}"), attribute)
    globals()[name] = value
    return value
