"""The operators as JAX functions, with all derivatives, under JAX's transforms.

    from tensorlang.interop import jax as ours

    y = ours.gelu(ours.dense(x, w, b))
    y = ours.dropout(y, 0.5, key=key)        # a single-use key of tensorlang.ops.random
    blur = ours.register(my_blur)            # your own operator

Exports the operators of `tensorlang.ops.nn` and `math` by name. They run on the host,
without copies where DLPack allows, and under `jit` through host callbacks. `grad`,
`jvp`, `vmap` and transforms built on these apply in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.graph.specs import KeySpec, Spec, TensorSpec
from tensorlang.graph.values import Argument, Value
from tensorlang.interop import derivatives
from tensorlang.interop.calls import (
    ARRAYS,
    INSTALL,
    Call,
    bound,
    checked,
    hashable,
    key_of,
    keys_of,
    parameters,
    split_call,
    words_of,
)
from tensorlang.ops import random
from tensorlang.ops.operator import Operator
from tensorlang.ops.registry import operators

try:
    import jax
except ImportError:
    raise ArgumentError(f"tensorlang.interop.jax needs JAX: {INSTALL}") from None

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Arrays: TypeAlias = Sequence[jax.Array]  # or tracers, or symbolic zeros in their place
Function: TypeAlias = Callable[..., jax.Array | tuple[jax.Array, ...]]


@cache
def register(op: Operator) -> Function:
    """Make an operator a JAX function.

    Its gradient is the operator `my.blur_grad` or a rule of `graph.gradient_of`;
    without one it can still be called without differentiation.

    Raises:
        OperatorError: it is no operator.
    """
    checked(op)

    def call(*args: Argument, **options: Argument) -> Arrays:
        made = _bind(op, bound(op, args, options))
        return made[0] if len(made) == 1 else tuple(made)

    call.__name__ = op.__name__
    call.__doc__ = op.__doc__
    return call


def __getattr__(name: str) -> Function:
    if name not in _LIBRARY:
        raise AttributeError(f"no operator is called {name!r}")
    return register(_LIBRARY[name])


_LIBRARY: Final = {
    op.__name__ if op.__name__ in op.aliases else op.id.replace(".", "_"): op
    for op in operators()
    if op.id.startswith(("nn.", "math."))
}


def _bind(op: Operator, values: Sequence[Argument]) -> list[jax.Array]:
    given = [
        _array(p.kind, value) for p, value in zip(parameters(op), values, strict=True)
    ]
    call, arrays = split_call(op, given)
    made: list[jax.Array] = _CALL.bind(*arrays, call=call)
    return made


def _array(kind: str, value: Argument) -> Argument:
    if kind not in ARRAYS:
        return hashable(value)
    if kind == "arrays":
        return [jax.numpy.asarray(each) for each in value]
    if isinstance(value, random.Key):
        if isinstance(jax.numpy.zeros(()), jax.core.Tracer):
            raise ArgumentError(
                "a key would be used once when the function is traced, and its numbers "
                "repeated in each call: pass jnp.asarray(random.key_data(key)) to it"
            )
        return jax.numpy.asarray(words_of(value).astype(np.uint32))
    plain = value is None or isinstance(value, (bool, int, float))
    if plain:
        return value
    array = jax.numpy.asarray(value)
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise DTypeError(
            f"an array of keys, {array.dtype}, holds no numbers; pass its "
            "jax.random.key_data"
        )
    return array


# ------------------------------------------------------------------ what it computes


def _host(call: Call, *arrays: jax.Array) -> list[np.ndarray]:
    held: list[Argument] = [_memory(array) for array in arrays]
    for at in keys_of(call):
        held[at] = key_of(held[at])
    args, kwargs = call.arguments(held)
    made = call.op(*args, **kwargs)
    results = made if isinstance(made, tuple) else (made,)
    return [np.asarray(each, _canonical(each.dtype)) for each in results]


def _memory(value: jax.Array) -> np.ndarray:
    """The memory of a JAX array, shared if possible."""
    try:
        return np.from_dlpack(value)
    except (TypeError, BufferError, RuntimeError, AttributeError):
        return np.asarray(value)


def _canonical(dtype: np.dtype) -> Any:
    """JAX's dtype for it: 32 bits without x64."""
    return jax.dtypes.canonicalize_dtype(dtype)


def _specs(call: Call, arrays: Sequence[jax.Array]) -> tuple[Spec, ...]:
    specs: list[Spec] = [TensorSpec(a.shape, a.dtype.name) for a in arrays]
    for at in keys_of(call):
        specs[at] = KeySpec(specs[at].shape[:-1])
    return tuple(specs)


def _results(*arrays: jax.Array, call: Call) -> list[jax.core.ShapedArray]:
    """Shapes and dtypes of the results, by the operator's own rule."""
    found = call.results(_specs(call, arrays))
    return [_Aval(s.shape, _canonical(s.numpy)) for s in found]  # type: ignore[union-attr]


def _eager(*arrays: jax.Array, call: Call) -> list[jax.Array]:
    return [jax.numpy.asarray(each) for each in _host(call, *arrays)]


def _staged(*arrays: jax.Array, call: Call) -> Arrays:
    avals = _results(*arrays, call=call)
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    made: Arrays = jax.pure_callback(partial(_host, call), shapes, *arrays)
    return made


def _batched(
    prim: Primitive, arrays: Sequence[jax.Array], dims: Sequence[object], **how: object
) -> tuple[list[jax.Array], list[int]]:
    """One call per element of the batch."""
    moving = [at for at, d in enumerate(dims) if isinstance(d, int)]
    rows = [jax.numpy.moveaxis(arrays[at], dims[at], 0) for at in moving]

    def one(row: Sequence[jax.Array]) -> Arrays:
        filled = list(arrays)
        for at, each in zip(moving, row, strict=True):
            filled[at] = each
        made: Arrays = prim.bind(*filled, **how)
        return made

    made = jax.lax.map(one, rows)
    return made, [0] * len(made)


# ------------------------------------------------------------------- its derivatives


def _run(
    program: derivatives.Program, given: Sequence[jax.Array]
) -> list[jax.Array | None]:
    def array(value: Value) -> jax.Array:
        data = getattr(value, "data", None)
        if data is not None:
            return jax.numpy.asarray(data)
        return jax.numpy.zeros(value.shape, value.spec.numpy)  # type: ignore[union-attr]

    return program.run(given, _bind, array)


def _is_float(array: jax.Array) -> bool:
    return bool(jax.numpy.issubdtype(array.dtype, jax.numpy.floating))


def _jvp(primals: Arrays, tangents: Arrays, *, call: Call) -> tuple[Arrays, Arrays]:
    results = _CALL.bind(*primals, call=call)
    moving = tuple(at for at, t in enumerate(tangents) if type(t) is not ad.Zero)
    moved = [ad.instantiate_zeros(tangents[at]) for at in moving]
    made = iter(_TANGENT.bind(*primals, *moved, call=call, moving=moving))
    return results, [
        next(made) if _is_float(y) else ad.Zero(_Aval(y.shape, jax.dtypes.float0))
        for y in results
    ]


def _tangents(
    *given: jax.Array, call: Call, moving: tuple[int, ...]
) -> list[jax.core.ShapedArray]:
    """Shapes and dtypes of the tangents of the float results."""
    results = _results(*given[: len(given) - len(moving)], call=call)
    return list(filter(_is_float, results))


def _tangent(*given: jax.Array, call: Call, moving: tuple[int, ...]) -> list[jax.Array]:
    """The tangents, linear in the tangents that follow the arrays."""
    arrays = given[: len(given) - len(moving)]
    program = derivatives.forward(call, _specs(call, arrays), moving)
    return [tangent for tangent in _run(program, given) if tangent is not None]


def _tangent_jvp(primals: Arrays, tangents: Arrays, **how: Any) -> Arrays:
    moved = [ad.instantiate_zeros(tangent) for tangent in tangents]
    made: Arrays = jax.jvp(partial(_tangent, **how), tuple(primals), tuple(moved))
    return made


def _transposed(
    dys: Arrays, *given: jax.Array, call: Call, moving: tuple[int, ...]
) -> Arrays:
    """Transpose of the linear map: gradients of the arrays with a tangent."""
    arrays = given[: len(given) - len(moving)]
    shapes, rest = _results(*arrays, call=call), iter(dys)
    each = [next(rest) if _is_float(y) else ad.Zero(y) for y in shapes]
    there = tuple(type(dy) is not ad.Zero for dy in each)
    program = derivatives.backward(call, _specs(call, arrays), there, moving)
    moved = [dy for dy, t in zip(each, there, strict=True) if t]
    found = _run(program, [*arrays, *moved])
    return [None] * len(arrays) + [
        ad.Zero(_Aval(arrays[at].shape, arrays[at].dtype)) if dx is None else dx
        for at, dx in zip(moving, found, strict=True)
    ]


_Aval = jax.core.ShapedArray
_CALL: Final = Primitive("tensorlang")
_CALL.multiple_results = True
_CALL.def_impl(_eager)
_CALL.def_abstract_eval(_results)
mlir.register_lowering(_CALL, mlir.lower_fun(_staged, multiple_results=True))
batching.primitive_batchers[_CALL] = partial(_batched, _CALL)
ad.primitive_jvps[_CALL] = _jvp

_TANGENT: Final = Primitive("tensorlang_tangent")
_TANGENT.multiple_results = True
_TANGENT.def_impl(_tangent)
_TANGENT.def_abstract_eval(_tangents)
mlir.register_lowering(_TANGENT, mlir.lower_fun(_tangent, multiple_results=True))
batching.primitive_batchers[_TANGENT] = partial(_batched, _TANGENT)
ad.primitive_jvps[_TANGENT] = _tangent_jvp
ad.primitive_transposes[_TANGENT] = _transposed
