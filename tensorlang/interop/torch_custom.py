"""Custom ops: the PyTorch schema of an operator and the encoding of its arguments."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import torch

from tensorlang.errors import ArgumentError, OperatorError
from tensorlang.graph.values import Argument
from tensorlang.interop.calls import (
    ARRAYS,
    Call,
    Parameter,
    bound,
    hashable,
    key_of,
    parameters,
    split_call,
    words_of,
)
from tensorlang.interop.torch_autograd import Kernel, Tensors, recording
from tensorlang.interop.torch_sizes import with_symbols
from tensorlang.ir import as_dtype
from tensorlang.ops.calls.binding import number
from tensorlang.ops.derived_gradients import gives_several
from tensorlang.ops.operator import Operator
from tensorlang.runtime.arrays.host_arrays import Foreign

if TYPE_CHECKING:
    from torch._functorch.autograd_function import VmapInfo
    from torch._ops import OpOverloadPacket

Dims: TypeAlias = int | Sequence[int | None] | None  # the batch dimensions of arguments
_LIBRARY: Final = torch.library.Library("tensorlang", "FRAGMENT")
_LOCK: Final = threading.Lock()
_NUMBERS: Final = (bool, int, float, torch.SymInt, torch.SymFloat)
# the schema type of each kind, if not the kind itself
_TYPES: Final = {
    "array": "Tensor",
    "operand": "Tensor?",
    "arrays": "Tensor[]",
    "key": "Tensor",
    "int": "SymInt",
    "ints": "int[1]",
    "sizes": "SymInt[]",
    "other": "str",  # JSON
    "dtype": "str",  # its name
}


@dataclass(frozen=True, eq=False)
class Custom:
    """A custom op.

    Attributes:
        op: The operator.
        parameters: Its parameters, in schema order.
        several: Whether it returns a list.
        packet: The PyTorch callable.
        coded: Parameters that are encoded for PyTorch, and their kinds.
        operands: Parameters that may be scalars; the scalars are extra schema
            parameters.
        scalars: Parameters that are numbers, which have no gradients, by place and
            name.
        types: Parameters that are element types, by place and name.
        keys: Parameters that are keys.
        named: The names of the keyword-only parameters.
        ordered: The number of parameters before them.
    """

    op: Operator
    parameters: tuple[Parameter, ...]
    several: bool
    packet: OpOverloadPacket
    coded: tuple[tuple[int, str], ...]
    operands: tuple[int, ...]
    scalars: tuple[tuple[int, str], ...]
    types: tuple[tuple[int, str], ...]
    keys: tuple[int, ...]
    named: tuple[str, ...]
    ordered: int

    @cached_property
    def is_plain(self) -> bool:
        """Whether PyTorch takes its arguments unchanged, without element types."""
        kinds = {p.kind for p in self.parameters if p.kind != "key" or p.needed}
        return not kinds & {"operand", "key", "other"}

    def __call__(self, *args: Argument, **kwargs: Argument) -> Tensors:
        """Call it like the operator; a key is consumed.

        Raises:
            ArgumentError: a number is a tensor that requires a gradient.
        """
        for at, name in self.scalars:  # PyTorch would drop the gradient silently
            value = args[at] if at < len(args) else kwargs.get(name)
            if isinstance(value, torch.Tensor):
                number(self.op.id, name, value)
        typed = any(at < len(args) or name in kwargs for at, name in self.types)
        if self.is_plain and not typed:
            return self.packet(*args, **kwargs)
        return self.packet(*self.encoded(bound(self.op, args, kwargs)))

    def encoded(self, values: Sequence[Argument]) -> list[Argument]:
        """All arguments, encoded for the schema."""
        made = list(map(_encoded, self.parameters, values))
        numbers = [made[at] for at in self.operands]
        for n, at in enumerate(self.operands):
            is_number = isinstance(numbers[n], _NUMBERS)
            made[at], numbers[n] = (None, made[at]) if is_number else (made[at], None)
        return made + numbers

    def decoded(self, args: Sequence[Argument]) -> list[Argument]:
        """Decoded schema arguments, without defaults at the end."""
        made = list(args[: len(self.parameters)])
        for at, kind in self.coded:
            if at < len(made):
                made[at] = _decoded(kind, made[at])
        for at, held in zip(self.operands, args[len(made) :], strict=False):
            made[at] = made[at] if held is None else held
        return made

    def apart(self, args: Sequence[Argument]) -> tuple[Call, list[torch.Tensor]]:
        """The call and arrays of schema arguments."""
        rest = [p.default for p in self.parameters[len(args) :]]
        return split_call(self.op, [*self.decoded(args), *rest])

    def called(self, values: list[Argument]) -> Sequence[Foreign]:
        """Call the operator itself with arguments in parameter order.

        Views are copied, since the schema declares no aliasing.
        """
        for at in self.keys:
            if at < len(values) and values[at] is not None:
                held = values[at]
                values[at] = key_of(
                    held.cpu() if isinstance(held, torch.Tensor) else held
                )
        if len(values) > self.ordered:
            more = dict(zip(self.named, values[self.ordered :], strict=False))
            made = self.op(*values[: self.ordered], **more)
        else:
            made = self.op(*values)
        if type(made) is tuple:
            return made
        if self.op.view:
            return (made.copy() if isinstance(made, np.ndarray) else made.clone(),)
        return (made,)

    def listed(self, made: Tensors) -> Sequence[torch.Tensor]:
        """The results as a sequence."""
        return made if isinstance(made, (list, tuple)) else (made,)

    def returned(self, made: Sequence[Foreign]) -> Foreign | list[Foreign]:
        """The results as the schema has them."""
        if self.several:
            return list(made)
        if len(made) != 1:
            raise OperatorError(
                f"{self.op.id} returns {len(made)} results; register it with "
                "several=True"
            )
        return made[0]


def _encoded(parameter: Parameter, value: Argument) -> Argument:
    """An argument, encoded for the schema."""
    kind = parameter.kind
    if kind == "other":
        return _text(value)
    if kind == "dtype" and value is not None:
        return _name(value)
    if kind == "key" and value is not None and not isinstance(value, torch.Tensor):
        return _words(value)
    return [value] if kind == "sizes" and isinstance(value, int) else value


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _text(value: Argument) -> str:
    try:
        return json.dumps(hashable(value))
    except TypeError as problem:
        raise ArgumentError(f"{value!r:.80} is no attribute: {problem}") from None


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _name(dtype: Argument) -> str:
    return as_dtype(dtype).name


@torch.compiler.disable  # type: ignore[untyped-decorator] # a key is used at each run
def _words(key: object) -> torch.Tensor:
    return torch.tensor(words_of(key))


def _decoded(kind: str, value: Argument) -> Argument:
    if kind == "other":
        return hashable(json.loads(value))
    if value is None:
        return None
    return value[0] if kind == "ints" and len(value) == 1 else tuple(value)


# ------------------------------------------------------------------ defining them

_DEFINED: Final[dict[Operator, Custom]] = {}


def custom(op: Operator, several: bool | None = None) -> Custom:
    """The custom op of an operator, defined once.

    Raises:
        OperatorError: not a function of tensors.
    """
    found = _DEFINED.get(op)
    if found is not None:
        return found
    with _LOCK:
        return _DEFINED.get(op) or _DEFINED.setdefault(op, _defined(op, several))


def name_of(op: Operator) -> str:
    """`gelu` for the library's operators exported by that name, else `my_blur`."""
    return op.__name__ if op.__name__ in op.aliases else op.id.replace(".", "_")


def _defined(op: Operator, several: bool | None) -> Custom:
    found, name = parameters(op), name_of(op)
    kinds = [(at, p.kind) for at, p in enumerate(found)]
    if op.inplace or not {k for _, k in kinds} & _TENSORS:
        raise OperatorError(
            f"{op.id} is not a function of tensors, so it cannot be a PyTorch "
            "operator; call it directly, under torch.no_grad()"
        )
    if several is None:
        several = op.id.endswith("_grad") or gives_several(op)
    numbers = (f"Scalar? {p.name}_number=None" for p in found if p.kind == "operand")
    takes = ", ".join([*map(_declared, found), *numbers])
    returns = "Tensor[]" if several else "Tensor"
    tags = (torch.Tag.pt2_compliant_tag,)
    _LIBRARY.define(f"{name}({takes}) -> {returns}", tags=tags)
    named = tuple(p.name for p in found if p.named)
    made = Custom(
        op,
        found,
        several,
        getattr(torch.ops.tensorlang, name),
        coded=tuple(each for each in kinds if each[1] in ("ints", "sizes", "other")),
        operands=tuple(at for at, kind in kinds if kind == "operand"),
        scalars=tuple((at, p.name) for at, p in enumerate(found) if p.kind == "float"),
        types=tuple((at, p.name) for at, p in enumerate(found) if p.kind == "dtype"),
        keys=tuple(at for at, kind in kinds if kind == "key"),
        named=named,
        ordered=len(found) - len(named),
    )
    qualified = f"tensorlang::{name}"
    _LIBRARY.impl(name, _computing(made), "CompositeExplicitAutograd")
    _LIBRARY.impl(name, recording(made, custom), "Autograd", with_keyset=True)
    torch.library.register_fake(qualified, _shaping(made), lib=_LIBRARY)
    torch.library.register_vmap(qualified, _batching(made), lib=_LIBRARY)
    return made


_TENSORS: Final = {kind for kind in ARRAYS if kind != "key"}


def _declared(parameter: Parameter) -> str:
    kind, default = _TYPES.get(parameter.kind, parameter.kind), parameter.default
    if parameter.needed:
        return f"{kind} {parameter.name}"
    if parameter.kind == "other":
        default = json.dumps(default)
    optional = "?" if default is None else ""
    shown = json.dumps(default) if isinstance(default, str) else default
    return f"{kind.removesuffix('?')}{optional} {parameter.name}={shown}"


def _computing(custom: Custom) -> Kernel:
    """The backend kernel: the operator itself, without autograd."""

    def compute(*given: Argument) -> Tensors:
        return custom.returned(custom.called(custom.decoded(given)))

    return compute


def _shaping(custom: Custom) -> Kernel:
    """The fake kernel: shapes and dtypes of the results."""

    def shape(*given: Argument) -> Tensors:
        call, arrays = custom.apart(given)
        specs, sizes = with_symbols(Call.results, call, arrays)
        return custom.returned([sizes.empty(spec, arrays[0]) for spec in specs])

    return shape


def _batching(custom: Custom) -> Kernel:
    """The vmap rule: one call per element of the batch."""

    def batch(
        info: VmapInfo, dims: Sequence[Dims], *given: Argument
    ) -> tuple[Tensors, int | list[int]]:
        if not info.batch_size:
            raise ArgumentError(f"{custom.op.id}: vmap over no elements has no results")
        rows = [
            custom.listed(custom.packet(*map(_row(at), given, dims)))
            for at in range(info.batch_size)
        ]
        made = custom.returned([torch.stack(each) for each in zip(*rows, strict=True)])
        return made, [0] * len(made) if custom.several else 0

    return batch


def _row(at: int) -> Callable[[Argument, Dims], Argument]:
    def row(value: Argument, dim: Dims) -> Argument:
        if isinstance(value, (list, tuple)) and isinstance(dim, (list, tuple)):
            return list(map(row, value, dim))
        return value if dim is None else value.select(dim, at)

    return row
