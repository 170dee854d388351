"""Sums of products in Einstein's notation, of one array or two, as in NumPy.

Dimensions of size 1 are left out, so that they broadcast, and dimensions that follow
each other in all arrays that have them become one. Labels that only one operand has are
summed in it first. What is left is a contraction over `batch` (both operands and the
result), `m` and `n` (one operand and the result) and `k` (both operands), which is
scheduled as matrix products are, whatever the order of its dimensions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain, pairwise
from operator import mul
from typing import Any, Final

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ops.math.subscripts import Labels, Sizes, parsed, sizes_of
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Floats

_USUAL: Final = (16, 256, 256)


@operator(
    "math.einsum",
    shapes=(_USUAL,) * 2,
    usual={"subscripts": "bij,bjk->bik"},
    whole=True,
    gradient={"linear": False},
)
def einsum(subscripts: str, a: Floats, b: Floats | None = None) -> ir.Tensor:
    """Sum of products over the labels that the result does not have, as `numpy.einsum`.

    Sums are accumulated in at least f32. Sizes of summed dimensions, and of the last
    dimension of the result, are constants of the kernel if there are two operands.

    Args:
        subscripts: A letter for each dimension of each operand, such as
            `"bij,bjk->bik"`; `...` stands for any number of dimensions. Without `->`,
            the result has those of `...` and, in alphabetical order, all letters that
            occur once. A letter that an operand has twice takes its diagonal.
        a: Floats of any shape. Dimensions of size 1 broadcast.
        b: Floats of any shape, for two operands; contract more than two in pairs.
        out: Output array.
    """
    arrays = [a] if b is None else [a, b]
    terms, result = parsed(subscripts, [array.ndim for array in arrays])
    sizes = sizes_of(subscripts, terms, arrays)
    shape = [sizes[label] for label in result]
    operands, result, loops = _joined(arrays, terms, result, sizes)
    uses = Counter(chain(result, *({*each.labels} for each in operands)))
    operands = [each.summed(uses, loops) for each in operands]
    order = _order(operands, result)
    products = _products(operands, order, loops)

    def rounded(*i: object) -> ir.Expr:
        place = dict(zip(result, i, strict=True))
        return ir.stored(products[tuple(place[label] for label in order)], a.dtype)

    made = ir.compute([loops[label] for label in result], rounded, "y")
    return ir.reshaped(made, shape)


@frozen
class _Operand:
    """An array and the labels of its dimensions."""

    array: ir.Tensor
    labels: Labels

    def __call__(self, place: Mapping[str, object]) -> ir.Expr:
        """The element at a place, widened to the accumulation type."""
        return ir.wide(self.array[tuple(place[label] for label in self.labels)])

    def summed(self, uses: Mapping[str, int], sizes: Sizes) -> _Operand:
        """The sums over the labels that only this operand has."""
        kept = tuple(label for label in dict.fromkeys(self.labels) if uses[label] > 1)
        if {*kept} == {*self.labels}:
            return self
        name = f"{self.array.buffer.name}_sums"
        return _Operand(_products([self], kept, sizes, name), kept)


def _products(
    operands: Sequence[_Operand], order: Labels, sizes: Sizes, name: str = "products"
) -> ir.Tensor:
    """The sums of products, with dimensions in the order given."""
    every = dict.fromkeys(chain.from_iterable(each.labels for each in operands))
    folded = [label for label in every if label not in order]
    if len(operands) == 2 and folded:
        fixed = (*folded, *order[-1:])
        sizes = sizes | {label: int(sizes[label]) for label in fixed}
    along = {
        label: ir.reduce_axis(sizes[label], f"k{folded.index(label)}")
        for label in folded
    }

    def element(*i: object) -> Any:
        place = along | dict(zip(order, i, strict=True))
        value = reduce(mul, (each(place) for each in operands))
        return ir.sum(value, [*along.values()]) if along else value

    return ir.compute([sizes[label] for label in order], element, name)


def _order(operands: Sequence[_Operand], result: Labels) -> Labels:
    """The order to compute a result in: its own, unless it ends in a batch.

    Register tiles have columns that only one of the operands has.
    """
    both = set(result).intersection(*(each.labels for each in operands))
    rest = tuple(label for label in result if label not in both)
    if len(operands) == 1 or result[-1:] == rest[-1:]:
        return result
    return (*(label for label in result if label in both), *rest)


def _joined(
    arrays: Sequence[ir.Tensor], terms: Sequence[Labels], result: Labels, sizes: Sizes
) -> tuple[list[_Operand], Labels, Sizes]:
    """The operands, the result and the sizes, with a label for each run of them."""
    wide = [
        tuple(x for x, size in zip(term, array.shape, strict=True) if size != 1)
        for term, array in zip(terms, arrays, strict=True)
    ]
    wide.append(tuple(label for label in result if sizes[label] != 1))
    runs: list[list[str]] = []
    for label in dict.fromkeys(chain.from_iterable(wide)):
        if runs and _adjacent(runs[-1][-1], label, wide):
            runs[-1].append(label)
        else:
            runs.append([label])
    loops = {run[0]: math.prod(sizes[label] for label in run) for run in runs}
    *own, kept = [tuple(label for label in term if label in loops) for term in wide]
    operands = [
        _Operand(ir.reshaped(array, [loops[label] for label in labels]), labels)
        for array, labels in zip(arrays, own, strict=True)
    ]
    return operands, kept, loops


def _adjacent(first: str, second: str, terms: Sequence[Labels]) -> bool:
    """Whether one label follows the other, once, wherever there is one of them."""
    return all(
        term.count(first) == term.count(second) == ((first, second) in pairwise(term))
        for term in terms
    )
