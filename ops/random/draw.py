"""Draws: operators that compute each element from its own bits of a key's stream.

A draw consumes its key, after all checks: a call that fails consumes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.frozen import frozen
from tensorlang.ops.calls.binding import shape_of
from tensorlang.ops.calls.tensors import Ready, check_result
from tensorlang.ops.operator import Body, Operator, Shapes
from tensorlang.ops.random.formats import result_of, width_of
from tensorlang.ops.random.impls import elements_per_hash, impl
from tensorlang.ops.spec.signature import Elements, ElementType, Key, Offset
from tensorlang.workload import Workload

with lazy.modules(__name__):
    from tensorlang.ops.random import definitions


FLOATS: Final = ("f16", "bf16", "f32", "f64")
CHUNK: Final = 1 << 31  # elements of one launch: an index fits 32 bits
Stream: TypeAlias = Literal["jax", "packed"]
_LONG: Final = 1 << 24
_MANY: Final = 1 << 12
_MEANINGS: Final = {
    "key": "A key, or a batch of keys, for a result `[*key.shape, *shape]`; consumed.",
    "shape": "The shape of the result for each key.",
    "dtype": "The element type: one of {}.",
    "offset": "The position in the key's stream of the first element drawn.",
    "stream": "`jax`, or `packed`, a different sequence that discards no bits.",
}


class Draw(Operator):
    """A draw: its result's shape and type are known without tracing its definition.

    So a first call whose kernel is cached loads no IR. One kernel serves all shapes,
    and one more all batches of keys.

    Args:
        id: Its canonical id.
        body: The definition.
        draws: The element types that it draws.
        shapes: The shape of the default workload.
        options: As for `Operator`.
    """

    # keys, and elements of each, in the workload of batches
    batch: ClassVar[tuple[int, int]] = (_MANY, _MANY)

    def __init__(
        self,
        id: str,
        body: Body,
        *,
        draws: tuple[str, ...],
        shapes: Shapes = ((_LONG,),),
        **options: Any,
    ) -> None:
        self._draws = draws
        super().__init__(id, body, shapes=shapes, whole=True, **options)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The element types that it draws."""
        return self._draws

    def workload(self, *shapes: tuple[int, ...], **options: Any) -> Workload:
        """The workload of a draw of this shape, which the keys' shape may precede.

        Raises:
            DTypeError: it does not draw this type.
        """
        made = super().workload(*shapes, **options)
        kind = made.named.get("dtype", self._draws[0])
        if kind not in self._draws:
            raise DTypeError(f"{self.id} draws {', '.join(self._draws)}, not {kind}")
        return made

    def prepared(
        self,
        arrays: Sequence[np.ndarray],
        attributes: Mapping[str, object],
        target: object,
    ) -> Ready:
        """The kernel of a call, and the canonical shapes of its arrays.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        (words,), named = arrays, dict(attributes)
        name = self.spec.elements
        shape = shape_of(self.id, name, named.pop(name))
        keys, width, count = words.shape[:-1], words.shape[-1], math.prod(shape)
        if keys and count >= CHUNK:
            raise ShapeError(
                f"{self.id}: each key of a batch draws fewer than 2^31 elements, not "
                f"{count}; draw in parts with offset="
            )
        apart, flat = named.pop("offset", False), (math.prod(keys),) if keys else ()
        workload = self.workload((*flat, width), (count,), **named)
        launch = self._kernel(workload, target)
        if apart or count >= CHUNK:
            launch = Chunks.of(launch, workload)
        check_result(self.id, (*keys, *shape))
        dtype = ir.DType(_drawn(workload)[0]).numpy
        result = (*keys, *shape), (*flat, count), dtype
        held = (*flat, width) if len(keys) > 1 else None
        return Ready.of(launch, (held,), (result,))

    def _kernel(self, workload: Workload, target: object) -> Any:
        """The kernel of a draw, of any size."""
        words, *counts = workload.shapes
        usual = [words, *self.usual_shapes]
        if len(words) > 1:
            many, each = self.batch
            usual = [(many, words[1]), *[(each,) for _ in counts]]
        of_all = workload.with_shapes(*usual)
        return self._launch(of_all, workload, target, of_all)


def _drawn(workload: Workload) -> tuple[str, int]:
    """The type of a draw's elements, and the bits that each takes."""
    name = workload.operator.rpartition(".")[2]
    kind = str(workload.named.get("dtype", "f32"))
    fine = workload.named.get("resolution") == "high"
    return result_of(name, kind), width_of("fine" if fine else name, kind)


def drawn(
    id: str, draws: tuple[str, ...] = FLOATS, *, kind: type[Draw] = Draw, **options: Any
) -> Callable[[Body], Draw]:
    """Decorator: make a draw from its definition.

    Args:
        id: Its canonical id.
        draws: The element types that it draws.
        kind: The class of the draw.
        options: As for `Operator`.
    """
    meanings = _MEANINGS | {"dtype": _MEANINGS["dtype"].format(", ".join(draws))}

    def make(body: Body) -> Draw:
        return kind(
            id, body, draws=draws, family="threefry", meanings=meanings, **options
        )

    return make


def from_bits(
    id: str, draws: tuple[str, ...] = FLOATS, usual: str = "float32"
) -> Callable[[Callable[[ir.Expr, ir.DType], ir.Expr]], Draw]:
    """Decorator: make a draw without parameters from the formula of one element.

    Args:
        id: Its canonical id.
        draws: The element types that it draws.
        usual: The default element type.
    """

    def make(formula: Callable[[ir.Expr, ir.DType], ir.Expr]) -> Draw:
        def draw(
            key: Key,
            shape: Elements = (),
            dtype: ElementType = usual,
            *,
            offset: Offset = 0,
            stream: Stream = "jax",
        ) -> ir.Tensor:
            source = definitions.Source.of(key, stream, offset)
            width = width_of(formula.__name__, dtype.name)
            return source.drawn(shape, dtype, width, lambda bits: formula(bits, dtype))

        draw.__doc__, draw.__module__ = formula.__doc__, formula.__module__
        return drawn(id, draws)(draw)

    return make


@frozen(eq=False)
class Chunks:
    """A launch of any length, from any element of a stream.

    It takes the arguments of the kernel, with the first element and a 0 in place of the
    counter's words, before all other scalars.
    """

    kernel: Any  # kernel's launch
    per_hash: int  # elements per hash
    bits: int  # bits per word of the counter

    @classmethod
    def of(cls, kernel: object, workload: Workload) -> Chunks:
        """The launch of a draw's kernel in chunks."""
        named = workload.named
        how, stream = impl(str(named["key"])), str(named["stream"])
        per = elements_per_hash(how, stream, _drawn(workload)[1])
        return cls(kernel, per, how.bits)

    def __call__(self, keys: Any, out: Any, *scalars: Any) -> None:
        """Fill `out`, of the shape `(elements,)` or `(keys, elements)`."""
        offset, _, *told = scalars
        first, skipped = divmod(offset, self.per_hash)
        if not skipped:
            self._fill(keys, out, first, told)
            return
        if type(out) is not np.ndarray:
            raise ArgumentError(
                f"offset={offset} of a result on a device is no multiple of "
                f"{self.per_hash}; give a NumPy array"
            )
        # not at the first element of a hash: through a temporary array
        spare = np.empty((*out.shape[:-1], out.shape[-1] + skipped), out.dtype)
        self._fill(keys, spare, first, told)
        np.copyto(out, spare[..., skipped:])

    def _fill(self, keys: Any, out: Any, first: int, told: list[Any]) -> None:
        """Split into launches within which the counter's low word does not carry."""
        count, start = out.shape[-1], 0
        while start < count:
            high, low = divmod((first + start // self.per_hash) % (1 << 64), 1 << 32)
            counter = (high, low) if self.bits == 32 else (0, (high << 32) + low)
            room = min(((1 << 32) - low) * self.per_hash, CHUNK, count - start)
            if room == count:
                self.kernel(keys, out, *counter, *told)
            elif out.ndim == 1:
                self.kernel(keys, out[start : start + room], *counter, *told)
            else:
                flat = out.reshape(-1)
                for row in range(len(out)):
                    at = row * count + start
                    part = flat[at : at + room].reshape(1, room)
                    self.kernel(keys[row : row + 1], part, *counter, *told)
            start += room


def element_type(name: str, dtype: Any, allowed: tuple[str, ...]) -> str:
    """The canonical name of an element type; DTypeError if it is not drawn."""
    kind = ir.as_dtype(dtype).name
    if kind not in allowed:
        raise DTypeError(f"{name} draws {', '.join(allowed)}, not {kind}")
    return kind


def number(name: str, what: str, value: Any) -> float:
    """A number, perhaps infinite, as a float; ArgumentError for anything else."""
    try:
        result = math.nan if isinstance(value, (str, bytes)) else float(value)
    except OverflowError:
        raise ArgumentError(f"{name}: {what} is larger than all floats") from None
    except (TypeError, ValueError):
        result = math.nan
    if math.isnan(result):
        raise ArgumentError(f"{name}: {what} is a number, not {value!r:.80}")
    return result
