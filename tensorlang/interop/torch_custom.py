"""Custom ops: what PyTorch is told of an operator, and how its arguments are coded."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import torch

from tensorlang.errors import ArgumentError, OperatorError
from tensorlang.graph.values import Argument
from tensorlang.interop.calls import (
    ARRAYS,
    Call,
    Parameter,
    apart,
    bound,
    hashable,
    key_of,
    parameters,
    words_of,
)
from tensorlang.interop.torch_autograd import Kernel, Tensors, recording
from tensorlang.interop.torch_sizes import asked
from tensorlang.ops.inplace import InplaceOperator
from tensorlang.ops.operator import Operator
from tensorlang.runtime.arrays import Foreign

if TYPE_CHECKING:
    from torch._functorch.autograd_function import VmapInfo
    from torch._ops import OpOverloadPacket

Dims: TypeAlias = int | Sequence[int | None] | None  # which is the batch's
_LIBRARY: Final = torch.library.Library("tensorlang", "FRAGMENT")
_LOCK: Final = threading.Lock()
_NUMBERS: Final = (bool, int, float, torch.SymInt, torch.SymFloat)
_SEVERAL: Final = ("nn.split", "nn.batch_norm_train")
# what a schema calls a parameter of each kind, where it is called otherwise there
_TYPES: Final = {
    "array": "Tensor",
    "operand": "Tensor?",
    "arrays": "Tensor[]",
    "key": "Tensor",
    "int": "SymInt",
    "ints": "int[1]",
    "sizes": "SymInt[]",
    "other": "str",  # JSON
}


@dataclass(frozen=True, slots=True, eq=False)
class Custom:
    """A custom op.

    Attributes:
        op: The operator.
        parameters: Its parameters, in the order of the schema.
        several: Whether it returns a list.
        packet: What PyTorch calls it by.
        coded: Which parameters PyTorch has in a form of its own, and their kinds.
        operands: Which may be numbers; these are further parameters of the schema.
        keys: Which are keys.
        named: The names of those that the operator takes by name.
        ordered: How many come before them.
    """

    op: Operator
    parameters: tuple[Parameter, ...]
    several: bool
    packet: OpOverloadPacket
    coded: tuple[tuple[int, str], ...]
    operands: tuple[int, ...]
    keys: tuple[int, ...]
    named: tuple[str, ...]
    ordered: int

    @property
    def is_plain(self) -> bool:
        """Whether its arguments are those of the operator, as PyTorch takes them."""
        kinds = {p.kind for p in self.parameters if p.kind != "key" or p.needed}
        return not kinds & {"operand", "key", "other"}

    def __call__(self, *args: Argument, **kwargs: Argument) -> Tensors:
        """Call it as the operator is called; a key is used up."""
        return self.packet(*self.encoded(bound(self.op, args, kwargs)))

    def encoded(self, values: Sequence[Argument]) -> list[Argument]:
        """The arguments of all parameters as the schema has them."""
        made = list(map(_encoded, self.parameters, values))
        numbers = [made[at] for at in self.operands]
        for n, at in enumerate(self.operands):
            is_number = isinstance(numbers[n], _NUMBERS)
            made[at], numbers[n] = (None, made[at]) if is_number else (made[at], None)
        return made + numbers

    def decoded(self, args: Sequence[Argument]) -> list[Argument]:
        """Arguments from those of the schema, less the defaults at the end."""
        made = list(args[: len(self.parameters)])
        for at, kind in self.coded:
            if at < len(made):
                made[at] = _decoded(kind, made[at])
        for at, number in zip(self.operands, args[len(made) :], strict=False):
            made[at] = made[at] if number is None else number
        return made

    def apart(self, args: Sequence[Argument]) -> tuple[Call, list[torch.Tensor]]:
        """The call of arguments of the schema, and its arrays."""
        rest = [p.default for p in self.parameters[len(args) :]]
        return apart(self.op, [*self.decoded(args), *rest])

    def called(self, values: list[Argument]) -> Sequence[Foreign]:
        """What the operator itself gives for arguments in the order of its parameters.

        A view is copied: PyTorch knows of no memory that results share with arguments.
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
        """The results that it returned as a sequence."""
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
    """An argument as the schema has it."""
    kind = parameter.kind
    if kind == "other":
        return _text(value)
    if kind == "key" and value is not None and not isinstance(value, torch.Tensor):
        return _words(value)
    return [value] if kind == "sizes" and isinstance(value, int) else value


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _text(value: Argument) -> str:
    try:
        return json.dumps(hashable(value))
    except TypeError as problem:
        raise ArgumentError(f"{value!r:.80} is no attribute: {problem}") from None


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
        OperatorError: it is no function of tensors.
    """
    found = _DEFINED.get(op)
    if found is not None:
        return found
    with _LOCK:
        return _DEFINED.get(op) or _DEFINED.setdefault(op, _defined(op, several))


def name_of(op: Operator) -> str:
    """`gelu` for the library's own operators that are found by that, else `my_blur`."""
    return op.__name__ if op.__name__ in op.aliases else op.id.replace(".", "_")


def _defined(op: Operator, several: bool | None) -> Custom:
    found, name = parameters(op), name_of(op)
    kinds = [(at, p.kind) for at, p in enumerate(found)]
    if isinstance(op, InplaceOperator) or not {k for _, k in kinds} & _TENSORS:
        raise OperatorError(
            f"{op.id} is no function of tensors, so it is none of PyTorch's operators; "
            "call it as it is, under torch.no_grad()"
        )
    if several is None:
        several = op.id.endswith("_grad") or op.id in _SEVERAL
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
    """The operator itself, on tensors that nothing is recorded of."""

    def compute(*given: Argument) -> Tensors:
        return custom.returned(custom.called(custom.decoded(given)))

    return compute


def _shaping(custom: Custom) -> Kernel:
    """Shapes and types of the results, by the operator's own rule."""

    def shape(*given: Argument) -> Tensors:
        call, arrays = custom.apart(given)
        specs, sizes = asked(Call.results, call, arrays)
        return custom.returned([sizes.empty(spec, arrays[0]) for spec in specs])

    return shape


def _batching(custom: Custom) -> Kernel:
    """One call for each element of a batch."""

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
