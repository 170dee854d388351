"""Sequences of arrays inside a network: their lengths and positions are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.specs import Dim
from tensorlang.onnx.calls import Call, Operand, Several, dtype_of
from tensorlang.onnx.folding import checked_size, foldable
from tensorlang.onnx.operators.data_movement import axis_of, concat, sliced
from tensorlang.onnx.reading import Number, Results, reads
from tensorlang.ops import nn


@reads("SequenceEmpty", folds=True)
def empty(*, dtype: int = 1) -> Results:
    """A sequence of no arrays."""
    dtype_of(dtype, "a sequence")
    return Several()


@reads("SequenceConstruct", folds=True)
def constructed(*inputs: Operand) -> Results:
    """A sequence of arrays."""
    return Several(inputs)


@reads("SequenceLength", folds=True)
def length(input_sequence: Several) -> Results:
    """The number of arrays."""
    return np.array(len(input_sequence))


@reads("SequenceAt", folds=True)
def at(input_sequence: Several, position: Number) -> Results:
    """One of the arrays; a negative position counts from the end."""
    return input_sequence[_place(position, len(input_sequence))]


@reads("SequenceInsert", folds=True)
def inserted(
    input_sequence: Several, tensor: Operand, position: Number | None = None
) -> Results:
    """The sequence with one more array, by default at its end."""
    made, count = list(input_sequence), len(input_sequence)
    if position is None or position == count:
        return Several([*made, tensor])
    made.insert(_place(position, count), tensor)
    return Several(made)


@reads("SequenceErase", folds=True)
def erased(input_sequence: Several, position: Number | None = None) -> Results:
    """The sequence without one of its arrays, by default the last."""
    count = len(input_sequence)
    gone = _place(-1 if position is None else position, count)
    return Several(input_sequence[:gone] + input_sequence[gone + 1 :])


def _place(position: Number, count: int) -> int:
    """A position, counted from the front; ShapeError if there is none."""
    if not -count <= position < count:
        raise ShapeError(f"position {position} of a sequence of {count}")
    return int(position) % count


@reads("ConcatFromSequence", folds=True)
def concatenated(
    input_sequence: Several, *, axis: int, new_axis: bool = False
) -> Results:
    """The arrays in one, along an axis of theirs or a new one."""
    if not input_sequence:
        raise ShapeError("a sequence of no arrays is concatenated")
    if not new_axis:
        return concat(*input_sequence, axis=axis)
    place = axis_of(axis, input_sequence[0].ndim + 1)
    wide = [
        foldable(nn.reshape)(x, (*x.shape[:place], 1, *x.shape[place:]))
        for x in input_sequence
    ]
    return concat(*wide, axis=place)


@reads("SplitToSequence", folds=True)
def split(
    call: Call,
    input: Operand,
    split: Operand | None = None,
    *,
    axis: int = 0,
    keepdims: bool = True,
) -> Results:
    """Parts of an array: of one element, of a given size, or of given sizes."""
    whole = input.shape[axis_of(axis, input.ndim)]
    if isinstance(whole, Dim):
        raise ShapeError(f"the size {whole} has to be known; export a fixed one")
    sizes = np.array(1) if split is None else call.known(split, "split")
    if sizes.ndim > 1 or (sizes < (not sizes.ndim)).any():
        raise ShapeError(f"parts of {sizes.tolist()} elements")
    each = sizes if sizes.ndim else np.diff([*range(0, whole, int(sizes)), whole])
    checked_size((len(each),), 8)
    ends = np.cumsum((0, *each)).tolist()
    if ends[-1] != whole:
        raise ShapeError(f"parts of {sizes.tolist()} elements, where there are {whole}")
    drops = split is None and not keepdims
    return Several(
        sliced(input, axis, begin if drops else slice(begin, end))
        for begin, end in pairwise(ends)
    )


@reads("OptionalGetElement", folds=True)
def element(input: Operand | Several | None = None) -> Results:
    """What an optional value holds; GraphError if it holds nothing."""
    if input is None:
        raise GraphError("an optional value without an element")
    return input


@reads("OptionalHasElement", folds=True)
def has_element(input: Operand | Several | None = None) -> Results:
    """Whether an optional value holds anything."""
    return np.array(input is not None)
