"""Scan, and loops that collect a result of each turn: unrolled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.recurrent import stacked
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Key
from tensorlang.onnx.calls import Call, Held, Operand, Several
from tensorlang.onnx.folding import to_value
from tensorlang.onnx.operators.data_movement import axis_of
from tensorlang.onnx.reading import Block, Ints, Results, reads
from tensorlang.ops import nn

MOST_TURNS: Final = 1 << 12


def joined(rows: Iterable[Held], axis: int = 0) -> Operand:
    """What the turns of a loop give, along a new axis.

    Raises:
        GraphError: there is none, so its shape is not known; or it is no tensor.
    """
    given = list(rows)
    tensors = [each for each in given if not isinstance(each, Key | Several | None)]
    if not tensors or len(tensors) < len(given):
        raise GraphError(
            "it collects nothing, keys or sequences; its turns must give tensors"
        )
    arrays = [each for each in tensors if isinstance(each, np.ndarray)]
    if len(arrays) == len(tensors):
        return np.stack(arrays, axis)
    made = stacked([to_value(each) for each in tensors])
    at = axis_of(axis, made.ndim)
    order = [*range(1, at + 1), 0, *range(at + 1, made.ndim)]
    return nn.transpose(made, order) if at else made


def check_turns(count: int) -> None:
    """GraphError for a number of turns that is too large to be unrolled."""
    if count > MOST_TURNS:
        raise GraphError(
            f"it collects results of {count} turns, which are unrolled; at most "
            f"{MOST_TURNS} are"
        )


@reads("Scan", since=9, folds=True)
def scan(
    call: Call,
    *given: Operand,
    body: Block,
    num_scan_inputs: int,
    scan_input_axes: Ints = (),
    scan_input_directions: Ints = (),
    scan_output_axes: Ints = (),
    scan_output_directions: Ints = (),
) -> Results:
    """A `Scan` over inputs of a known length."""
    held = len(given) - num_scan_inputs
    states: list[Held] = list(given[:held])
    rest = given[held:]
    outputs = len(body.output) - held
    if not rest or outputs < 0 or len(body.input) != len(given):
        raise GraphError(f"{len(given)} inputs, of which {num_scan_inputs} are scanned")
    axes = _each(scan_input_axes, rest)
    over = [axis_of(a, x.ndim) for a, x in zip(axes, rest, strict=True)]
    (count, *others) = {x.shape[axis] for x, axis in zip(rest, over, strict=True)}
    if isinstance(count, Dim) or others:
        raise ShapeError(f"it scans inputs of lengths {count}, {others}; export one")
    check_turns(count)
    call.program.settle()
    found: list[Sequence[Held]] = []
    for turn in range(count):
        parts = [
            _part(x, axis, count - 1 - turn if back else turn)
            for x, axis, back in zip(
                rest, over, _each(scan_input_directions, rest), strict=True
            )
        ]
        made = call.program.inside(body, call.around, (*states, *parts))
        states = list(made[:held])
        found.append(made[held:])
    if outputs and not found:
        raise GraphError("it scans inputs without elements; its results are not known")
    kept = range(outputs)
    collected = [
        joined((row[n] for row in (found[::-1] if back else found)), axis)
        for n, axis, back in zip(
            kept,
            _each(scan_output_axes, kept),
            _each(scan_output_directions, kept),
            strict=True,
        )
    ]
    return (*states, *collected)


def _each(numbers: Ints, of: Sequence[object]) -> Ints:
    """A number for each, by default 0; GraphError if there are others."""
    if numbers and len(numbers) != len(of):
        raise GraphError(f"attributes {numbers} for {len(of)} arrays")
    return tuple(numbers) or (0,) * len(of)


def _part(x: Operand, axis: int, at: int) -> Operand:
    """One element along an axis."""
    place: tuple[slice | int, ...] = (*[slice(None)] * axis, at)
    return x[place]
