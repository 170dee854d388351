"""Layer 1, the IR: nodes, text, simplifier, verifier, interpreter, definitions.

`nodes` defines the grammar and its semantics; `frontend` builds definitions in
tensor-expression style; `show` and `parse` convert to and from text; `run` executes any
function.
"""

from __future__ import annotations

from tensorlang import lazy
from tensorlang.ir.dtypes import DType as DType
from tensorlang.ir.dtypes import as_dtype as as_dtype
from tensorlang.ir.dtypes import bf16 as bf16
from tensorlang.ir.dtypes import boolean as boolean
from tensorlang.ir.dtypes import f16 as f16
from tensorlang.ir.dtypes import f32 as f32
from tensorlang.ir.dtypes import f64 as f64
from tensorlang.ir.dtypes import i8 as i8
from tensorlang.ir.dtypes import i16 as i16
from tensorlang.ir.dtypes import i32 as i32
from tensorlang.ir.dtypes import i64 as i64
from tensorlang.ir.dtypes import u8 as u8
from tensorlang.ir.dtypes import u16 as u16
from tensorlang.ir.dtypes import u32 as u32
from tensorlang.ir.dtypes import u64 as u64

with lazy.names(__name__):  # a process that only calls kernels needs none of these
    from tensorlang.ir import intrinsics as intrinsics
    from tensorlang.ir import natives as natives
    from tensorlang.ir import nodes as nodes
    from tensorlang.ir import visit as visit
    from tensorlang.ir.definitions import elementwise as elementwise
    from tensorlang.ir.definitions import extremes as extremes
    from tensorlang.ir.definitions import frontend as frontend
    from tensorlang.ir.definitions import nests as nests
    from tensorlang.ir.definitions import reducers as reducers
    from tensorlang.ir.definitions import rows as rows
    from tensorlang.ir.definitions.assembly import function as function
    from tensorlang.ir.definitions.concatenation import Piece as Piece
    from tensorlang.ir.definitions.concatenation import joined as joined
    from tensorlang.ir.definitions.concatenation import joined_pieces as joined_pieces
    from tensorlang.ir.definitions.elementwise import NARROW as NARROW
    from tensorlang.ir.definitions.elementwise import broadcast as broadcast
    from tensorlang.ir.definitions.elementwise import elements as elements
    from tensorlang.ir.definitions.elementwise import (
        elementwise_tensors as elementwise_tensors,
    )
    from tensorlang.ir.definitions.elementwise import stored as stored
    from tensorlang.ir.definitions.elementwise import wide as wide
    from tensorlang.ir.definitions.frontend import ReduceAxis as ReduceAxis
    from tensorlang.ir.definitions.frontend import Reduction as Reduction
    from tensorlang.ir.definitions.frontend import Stage as Stage
    from tensorlang.ir.definitions.frontend import Tensor as Tensor
    from tensorlang.ir.definitions.frontend import argmax as argmax
    from tensorlang.ir.definitions.frontend import argmin as argmin
    from tensorlang.ir.definitions.frontend import compute as compute
    from tensorlang.ir.definitions.frontend import max as max
    from tensorlang.ir.definitions.frontend import min as min
    from tensorlang.ir.definitions.frontend import placeholder as placeholder
    from tensorlang.ir.definitions.frontend import prod as prod
    from tensorlang.ir.definitions.frontend import reduce_axis as reduce_axis
    from tensorlang.ir.definitions.frontend import reduction as reduction
    from tensorlang.ir.definitions.frontend import reshaped as reshaped
    from tensorlang.ir.definitions.frontend import scalar as scalar
    from tensorlang.ir.definitions.frontend import size as size
    from tensorlang.ir.definitions.frontend import sum as sum
    from tensorlang.ir.definitions.sizes import Size as Size
    from tensorlang.ir.definitions.sizes import require as require
    from tensorlang.ir.gradients.adjoints import adjoint as adjoint
    from tensorlang.ir.gradients.derivatives import derivative as derivative
    from tensorlang.ir.interpreter import run as run
    from tensorlang.ir.intrinsics import approximate_exp2 as approximate_exp2
    from tensorlang.ir.intrinsics import cos as cos
    from tensorlang.ir.intrinsics import erf as erf
    from tensorlang.ir.intrinsics import erfinv as erfinv
    from tensorlang.ir.intrinsics import exp as exp
    from tensorlang.ir.intrinsics import exp2 as exp2
    from tensorlang.ir.intrinsics import expm1 as expm1
    from tensorlang.ir.intrinsics import greater_number as greater_number
    from tensorlang.ir.intrinsics import intrinsic as intrinsic
    from tensorlang.ir.intrinsics import log as log
    from tensorlang.ir.intrinsics import log1p as log1p
    from tensorlang.ir.intrinsics import log2 as log2
    from tensorlang.ir.intrinsics import maximum as maximum
    from tensorlang.ir.intrinsics import minimum as minimum
    from tensorlang.ir.intrinsics import pow as pow
    from tensorlang.ir.intrinsics import sigmoid as sigmoid
    from tensorlang.ir.intrinsics import sin as sin
    from tensorlang.ir.intrinsics import tanh as tanh
    from tensorlang.ir.natives import ceil as ceil
    from tensorlang.ir.natives import floor as floor
    from tensorlang.ir.natives import fma as fma
    from tensorlang.ir.natives import isinf as isinf
    from tensorlang.ir.natives import isnan as isnan
    from tensorlang.ir.natives import round as round
    from tensorlang.ir.natives import sqrt as sqrt
    from tensorlang.ir.natives import trunc as trunc
    from tensorlang.ir.nodes import Alloc as Alloc
    from tensorlang.ir.nodes import Axis as Axis
    from tensorlang.ir.nodes import Binary as Binary
    from tensorlang.ir.nodes import Bitcast as Bitcast
    from tensorlang.ir.nodes import Block as Block
    from tensorlang.ir.nodes import Buffer as Buffer
    from tensorlang.ir.nodes import Compare as Compare
    from tensorlang.ir.nodes import Const as Const
    from tensorlang.ir.nodes import Evaluate as Evaluate
    from tensorlang.ir.nodes import Expr as Expr
    from tensorlang.ir.nodes import ExprLike as ExprLike
    from tensorlang.ir.nodes import For as For
    from tensorlang.ir.nodes import Function as Function
    from tensorlang.ir.nodes import If as If
    from tensorlang.ir.nodes import Let as Let
    from tensorlang.ir.nodes import Load as Load
    from tensorlang.ir.nodes import Node as Node
    from tensorlang.ir.nodes import Param as Param
    from tensorlang.ir.nodes import Reduce as Reduce
    from tensorlang.ir.nodes import Reducer as Reducer
    from tensorlang.ir.nodes import Select as Select
    from tensorlang.ir.nodes import Seq as Seq
    from tensorlang.ir.nodes import Stmt as Stmt
    from tensorlang.ir.nodes import Store as Store
    from tensorlang.ir.nodes import Var as Var
    from tensorlang.ir.nodes import as_expr as as_expr
    from tensorlang.ir.nodes import binary as binary
    from tensorlang.ir.nodes import bitcast as bitcast
    from tensorlang.ir.nodes import cast as cast
    from tensorlang.ir.nodes import select as select
    from tensorlang.ir.nodes import seq as seq
    from tensorlang.ir.nodes import unary as unary
    from tensorlang.ir.simplification.sharing import named as named
    from tensorlang.ir.simplification.simplify import (
        simplify_function as simplify_function,
    )
    from tensorlang.ir.text.parser import parse as parse
    from tensorlang.ir.text.printer import show as show
    from tensorlang.ir.verification.verifier import verify as verify
