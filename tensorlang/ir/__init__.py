"""Layer 1, the IR: nodes, text, simplifier, verifier, interpreter, definitions.

`nodes` defines the grammar and its semantics; `frontend` builds definitions in
tensor-expression style; `show` and `parse` convert to and from text; `run` executes any
function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang import lazy
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
    from tensorlang.ir import frontend as frontend
    from tensorlang.ir import intrinsics as intrinsics
    from tensorlang.ir import nodes as nodes
    from tensorlang.ir import reducers as reducers
    from tensorlang.ir import visit as visit
    from tensorlang.ir.adjoints import adjoint
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
else:  # a process that only calls kernels needs none of these
    __getattr__, __dir__ = lazy.namespace(
        __name__,
        {
            "adjoints": ("adjoint",),
            "assembly": ("function",),
            "concatenation": ("joined",),
            "derivatives": ("derivative",),
            "elementwise": (
                "broadcast", "elementwise_tensors", "elements", "stored", "wide",
            ),
            "extremes": (),
            "frontend": (
                "ReduceAxis", "Reduction", "Tensor", "argmax", "argmin", "compute",
                "max", "min", "named", "placeholder", "prod", "reduce_axis",
                "reduction", "reshaped", "scalar", "size", "sum",
            ),
            "interpreter": ("run",),
            "intrinsics": (
                "ceil", "cos", "erf", "erfinv", "exp", "exp2", "expm1", "floor", "fma",
                "intrinsic", "isinf", "isnan", "log", "log1p", "log2", "maximum",
                "minimum", "pow", "round", "sigmoid", "sin", "sqrt", "tanh", "trunc",
            ),
            "nodes": (
                "Buffer", "Const", "Expr", "Function", "Stmt", "Var", "as_expr",
                "binary", "bitcast", "cast", "select", "unary",
            ),
            "parser": ("parse",),
            "printer": ("show",),
            "reducers": (),
            "rows": (),
            "simplify": ("simplify_function",),
            "sizes": ("Size", "require"),
            "verifier": ("verify",),
            "visit": (),
        },
    )  # fmt: skip

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
