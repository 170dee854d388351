"""Map symbolic sizes of PyTorch's compiler to named sizes of graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

import torch

from tensorlang.errors import TensorlangError
from tensorlang.graph.specs import Dim, Extent, KeySpec, Spec, TensorSpec
from tensorlang.graph.values import Argument
from tensorlang.interop.calls import Call, interned, keys_of

T = TypeVar("T")
_MOST: Final = 4  # names for which shapes are inferred at once


@dataclass(slots=True)
class Sizes:
    """The symbolic sizes of a traced call."""

    fixed: bool = False  # whether all are specialised to their current values
    # PyTorch symbol of each name
    names: dict[str, torch.SymInt] = field(default_factory=dict)

    def known(
        self, call: Call, arrays: Sequence[torch.Tensor]
    ) -> tuple[Call, tuple[Spec, ...]]:
        """The call and the specs of its arrays, with names in place of symbols."""
        try:
            specs: list[Spec] = [_spec(a.shape, a.dtype) for a in arrays]
        except TypeError:  # symbols are not hashable
            specs = [_spec(self.named(tuple(a.shape)), a.dtype) for a in arrays]
        for at in keys_of(call):
            specs[at] = KeySpec(specs[at].shape[:-1])
        if any(map(_open, call.given)):
            call = interned(call.op, *self.named(call.given))
        if len(self.names) > _MOST:
            self.fixed = True
            self.names.clear()
            return self.known(call, arrays)
        return call, tuple(specs)

    def named(self, value: Argument) -> Argument:
        """A nest with names in place of symbols."""
        if isinstance(value, tuple):
            return tuple(map(self.named, value))
        return self._extent(value) if isinstance(value, torch.SymInt) else value

    def _extent(self, size: torch.SymInt) -> Extent:
        """A symbol as a polynomial of names; its current value if it is not one."""
        if self.fixed:
            return int(size)
        made: Extent = 0
        for term, count in size.node.expr.as_coefficients_dict().items():
            factors = term.as_powers_dict()
            if not count.is_Integer or not all(
                (base.is_Symbol or base == 1) and power.is_Integer and power > 0
                for base, power in factors.items()
            ):
                return int(size)
            part: Extent = int(count)
            for base, power in factors.items():
                if base != 1:
                    self._note(base, size)
                    part = math.prod([Dim.named(str(base))] * int(power), start=part)
            made = made + part
        return made

    def _note(self, symbol: object, size: torch.SymInt) -> None:
        if size.node.expr == symbol:
            self.names[str(symbol)] = size
        elif str(symbol) not in self.names:
            env = size.node.shape_env
            self.names[str(symbol)] = env.create_symintnode(symbol, hint=None)

    def value(self, value: Argument) -> Argument:
        """A nest with symbols in place of names."""
        if isinstance(value, (tuple, list)):
            return tuple(map(self.value, value))
        if not isinstance(value, Dim):
            return value
        terms = (
            math.prod((self.names[name] for name in names), start=count)
            for names, count in value.terms
        )
        return sum(terms)

    def empty(self, spec: Spec, like: torch.Tensor) -> torch.Tensor:
        """An uninitialised tensor of a spec on the device of another."""
        assert isinstance(spec, TensorSpec)
        return like.new_empty(self.value(spec.shape), dtype=_dtype(spec))

    def zeros(self, spec: Spec, like: torch.Tensor) -> torch.Tensor:
        """A zero tensor of a spec on the device of another."""
        assert isinstance(spec, TensorSpec)
        return like.new_zeros(self.value(spec.shape), dtype=_dtype(spec))


def _open(value: object) -> bool:
    return isinstance(value, (tuple, torch.SymInt))


def with_symbols(
    ask: Callable[..., T],
    call: Call,
    arrays: Sequence[torch.Tensor],
    *more: tuple[bool | int, ...],
) -> tuple[T, Sizes]:
    """Query a call and return its sizes, kept symbolic where possible."""
    try:
        return _with_fixed_shapes(
            ask, call, more, *[(a.shape, a.dtype) for a in arrays]
        )
    except TypeError:  # symbols are not hashable
        pass
    sizes = Sizes()
    try:
        return ask(*sizes.known(call, arrays), *more), sizes
    except TensorlangError:
        if not sizes.names:
            raise
    sizes = Sizes(fixed=True)
    return ask(*sizes.known(call, arrays), *more), sizes


@lru_cache(maxsize=4096)
def _with_fixed_shapes(
    ask: Callable[..., T],
    call: Call,
    more: tuple[tuple[bool | int, ...], ...],
    *arrays: tuple[tuple[int, ...], torch.dtype],
) -> tuple[T, Sizes]:
    sizes = Sizes()
    return ask(*sizes.known(call, [_Sized(*each) for each in arrays]), *more), sizes


class _Sized(NamedTuple):
    shape: tuple[int, ...]
    dtype: torch.dtype


@lru_cache(maxsize=4096)
def _spec(shape: tuple[Extent, ...], dtype: torch.dtype) -> TensorSpec:
    return TensorSpec(shape, dtype)


def _dtype(spec: TensorSpec) -> torch.dtype:
    found: torch.dtype = getattr(torch, spec.numpy.name)
    return found
