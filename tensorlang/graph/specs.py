"""Specs: dtypes and symbolic shapes.

A symbolic size is a polynomial in named sizes: `batch`, `2*batch`, `batch*time`. Sums
and products of sizes are sizes; a program can compute with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, overload

import numpy as np

from tensorlang.errors import ShapeError
from tensorlang.frozen import frozen
from tensorlang.ir.dtypes import DType, as_dtype

Monomial: TypeAlias = tuple[str, ...]
_PRIMES: Final = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)


@frozen
class Dim:
    """A symbolic size: a sum of integer multiples of products of named sizes.

    Attributes:
        terms: Sorted names of each product, and its coefficient.
    """

    terms: tuple[tuple[Monomial, int], ...]

    @classmethod
    def named(cls, name: str) -> Dim:
        """The size of that name."""
        if not name.isidentifier():
            raise ShapeError(f"a size has a name such as 'batch', not {name!r}")
        return cls((((name,), 1),))

    @property
    def names(self) -> set[str]:
        """The names of the sizes that it depends on."""
        return {name for monomial, _ in self.terms for name in monomial}

    def at(self, sizes: Mapping[str, int]) -> int:
        """Its value for given named sizes.

        Raises:
            ShapeError: a name is missing, or the value is negative.
        """
        try:
            made = sum(
                count * int(np.prod([sizes[name] for name in monomial], dtype=int))
                for monomial, count in self.terms
            )
        except KeyError as missing:
            name = missing.args[0]
            raise ShapeError(
                f"the size {name} is not known; give it, as in sizes={{{name!r}: 32}}"
            ) from None
        if made < 0:
            known = ", ".join(f"{name} = {sizes[name]}" for name in sorted(self.names))
            raise ShapeError(f"the size {self} is negative for {known}")
        return made

    def __add__(self, other: Dim | int) -> Extent:
        return _tidy([*self.terms, *_terms(other)])

    def __mul__(self, other: Dim | int) -> Extent:
        pairs = itertools.product(self.terms, _terms(other))
        return _tidy([(tuple(sorted(a + b)), m * n) for (a, m), (b, n) in pairs])

    def __sub__(self, other: Dim | int) -> Extent:
        return self + other * -1

    def __rsub__(self, other: int) -> Extent:
        return self * -1 + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __str__(self) -> str:
        shown = []
        for monomial, count in self.terms:
            factors = [] if count == 1 and monomial else [str(count)]
            shown.append("*".join([*factors, *monomial]))
        return "+".join(shown).replace("+-", "-")

    __repr__ = __str__


Extent: TypeAlias = int | Dim
Shape: TypeAlias = tuple[Extent, ...]


def _terms(value: Dim | int) -> list[tuple[Monomial, int]]:
    return list(value.terms) if isinstance(value, Dim) else [((), int(value))]


def _tidy(terms: Sequence[tuple[Monomial, int]]) -> Extent:
    """The sum of terms: a plain number if it has no names."""
    counts: dict[Monomial, int] = {}
    for monomial, count in terms:
        counts[monomial] = counts.get(monomial, 0) + count
    left = sorted((m, n) for m, n in counts.items() if n)
    if all(not monomial for monomial, _ in left):
        return sum(count for _, count in left)
    return Dim(tuple(sorted(left, key=lambda term: (-len(term[0]), term[0]))))


def shape_of(given: Sequence[Extent | str] | int | str) -> Shape:
    """A shape from integers, names and symbolic sizes; ShapeError for anything else."""
    made: list[Extent] = []
    for extent in (given,) if isinstance(given, (int, str)) else given:
        if isinstance(extent, str):
            made.append(Dim.named(extent))
        elif isinstance(extent, Dim):
            made.append(extent)
        elif isinstance(extent, (int, np.integer)) and extent >= 0:
            made.append(int(extent))
        else:
            raise ShapeError(
                f"a shape consists of non-negative integers and names, not {given!r}"
            )
    return tuple(made)


def names_in(value: object) -> set[str]:
    """The named sizes in a shape, an attribute, or a nest of them."""
    if isinstance(value, Dim):
        return value.names
    if isinstance(value, (tuple, list)):
        return set().union(*map(names_in, value))
    return set()


@overload
def at_sizes(value: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]: ...
@overload
def at_sizes(value: object, sizes: Mapping[str, int]) -> Any: ...
def at_sizes(value: object, sizes: Mapping[str, int]) -> object:
    """Substitute values for named sizes."""
    if isinstance(value, Dim):
        return value.at(sizes)
    if isinstance(value, (tuple, list)):
        return type(value)(at_sizes(each, sizes) for each in value)
    return value


@frozen
class TensorSpec:
    """Shape and dtype of a tensor.

    Attributes:
        shape: Its extents: integers, names such as `"batch"`, or symbolic sizes.
        dtype: In any spelling: `"float32"`, `"f32"`, `np.float32`.
    """

    shape: Shape
    dtype: str = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", shape_of(self.shape))
        object.__setattr__(self, "dtype", as_dtype(self.dtype).name)

    @property
    def numpy(self) -> np.dtype:
        """The dtype as NumPy's."""
        return DType(self.dtype).numpy

    def at(self, sizes: Mapping[str, int]) -> TensorSpec:
        """Substitute values for named sizes."""
        return TensorSpec(at_sizes(self.shape, sizes), self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@frozen
class KeySpec:
    """The type of a random key, or of a batch of keys.

    Attributes:
        shape: The batch's shape; `()` for one key.
        impl: The hash, such as `threefry2x32`.
    """

    shape: Shape = ()
    impl: str = "threefry2x32"

    def at(self, sizes: Mapping[str, int]) -> KeySpec:
        """Substitute values for named sizes."""
        return KeySpec(at_sizes(self.shape, sizes), self.impl)

    def __str__(self) -> str:
        batch = f"[{', '.join(map(str, self.shape))}]" if self.shape else ""
        return f"key<{self.impl}>{batch}"


Spec: TypeAlias = TensorSpec | KeySpec


def sample(names: set[str], beyond: int = 0) -> list[str]:
    """The first sample size of each name, as text."""
    first = enumerate(sorted(names))
    return [f"{name} = {_PRIMES[3 * n] + beyond}" for n, name in first]


def least(nest: object) -> int:
    """The least value of named sizes for which no size in a nest is negative."""
    if isinstance(nest, Dim):
        return sum(-count for _, count in nest.terms if count < 0)
    if isinstance(nest, (tuple, list)):
        return max(map(least, nest), default=0)
    return 0


def by_samples(
    names: set[str], ask: Callable[[dict[str, int]], tuple[Spec, ...]], beyond: int = 0
) -> tuple[Spec, ...]:
    """Infer symbolic specs from a rule for concrete sizes.

    The rule is evaluated at two values of each name, which determine a polynomial of
    the first degree in each; a further evaluation must agree with it. All values exceed
    `beyond`, from where on the rule is one polynomial.

    Raises:
        ShapeError: no such polynomial gives the rule's shapes.
    """
    order = sorted(names)
    if not order:
        return ask({})
    steps = {
        name: [prime + beyond for prime in _PRIMES[3 * n : 3 * n + 3]]
        for n, name in enumerate(order)
    }
    corners = list(itertools.product((0, 1), repeat=len(order)))
    asked = [
        ask({name: steps[name][at] for name, at in zip(order, corner, strict=True)})
        for corner in corners
    ]
    found = tuple(
        _fitted([specs[n] for specs in asked], order, steps)
        for n in range(len(asked[0]))
    )
    last = {name: sizes[2] for name, sizes in steps.items()}
    seen = ask(last)
    for spec, check in zip(found, seen, strict=True):
        if spec.at(last) != check:
            raise ShapeError(
                f"a result has shape {check.shape} where {last}, which is not a sum of "
                f"products of {', '.join(order)}; give these sizes as numbers"
            )
    return found


def _fitted(
    specs: Sequence[Spec], order: list[str], steps: Mapping[str, Sequence[int]]
) -> Spec:
    """The spec that takes these values at the corners."""
    corners = [at_sizes(spec.shape, {}) for spec in specs]
    shape = tuple(
        _polynomial(list(extents), order, steps)
        for extents in zip(*corners, strict=False)
    )
    first = specs[0]
    if isinstance(first, KeySpec):
        return KeySpec(shape, first.impl)
    return TensorSpec(shape, first.dtype)


def _polynomial(
    values: list[int], order: list[str], steps: Mapping[str, Sequence[int]]
) -> Extent:
    """The extent with these values at the corners, the last name varying fastest."""
    if not order:
        return values[0]
    half = len(values) // 2
    name, rest = order[0], order[1:]
    low, high = steps[name][:2]
    slopes = [b - a for a, b in zip(values[:half], values[half:], strict=True)]
    whole = [slope // (high - low) for slope in slopes]
    start = [a - s * low for a, s in zip(values[:half], whole, strict=True)]
    slope = _polynomial(whole, rest, steps)
    offset = _polynomial(start, rest, steps)
    return Dim.named(name) * slope + offset if slope else offset
