"""Fourier transforms of known length, as products with a matrix."""

from __future__ import annotations

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.values import Tensor
from tensorlang.onnx.calls import Call, Operand
from tensorlang.onnx.folding import checked_size
from tensorlang.onnx.operators.data_movement import axis_of, taken_along
from tensorlang.onnx.operators.gathering import known_shape
from tensorlang.onnx.reading import Number, Results, reads
from tensorlang.ops import math, nn


def _transformed(
    x: Tensor, length: int | None, *, inverse: bool, onesided: bool
) -> Tensor:
    """The transform along the dimension before the last, which has 1 or 2 parts."""
    *outer, size, parts = known_shape(x)
    if parts not in {1, 2} or not size:
        raise ShapeError(f"numbers of {x.spec}; the last dimension is 1 or 2")
    count = length
    if count is None:
        count = 2 * (size - 1) if inverse else size
    if count < 1:
        raise ShapeError(f"a transform of {count} numbers")
    checked_size((size * parts, count, 2), 16, "the matrix of a transform")
    basis = np.eye(size * parts).reshape(-1, size, parts)
    signal = basis[..., 0] + (1j * basis[..., 1] if parts == 2 else 0)
    if inverse:
        found: np.ndarray = np.fft.irfft(signal, count, axis=1)
    else:
        found = np.fft.fft(signal, count, axis=1)
        found = found[:, : count // 2 + 1] if onesided else found
    made = found[..., None] if inverse else np.stack([found.real, found.imag], -1)
    matrix = np.ascontiguousarray(made.reshape(size * parts, -1).T)
    flat = math.cast(nn.reshape(x, (*outer, size * parts)), "f64")
    y = math.cast(nn.dense(flat, matrix), x.spec.dtype)  # results near 0 are sums
    shaped: Tensor = nn.reshape(y, (*outer, *made.shape[1:]))
    return shaped


@reads("DFT")
def dft(
    call: Call,
    input: Tensor,
    dft_length: Number | None = None,
    axis: Number | None = None,
    *,
    inverse: bool,
    onesided: bool,
) -> Results:
    """The discrete Fourier transform along an axis."""
    if inverse and not onesided:
        raise GraphError("attribute inverse=1 is supported with onesided=1 only")
    given = axis if axis is not None else (1 if call.version < 20 else -2)
    at, rank = axis_of(int(given), input.ndim), input.ndim
    if at == rank - 1:
        raise ShapeError(f"axis {given} is that of real and imaginary parts")
    order = [*range(at), *range(at + 1, rank - 1), at, rank - 1]
    back = [*range(at), rank - 2, *range(at, rank - 2), rank - 1]
    length = None if dft_length is None else int(dft_length)
    y = _transformed(
        nn.transpose(input, order), length, inverse=inverse, onesided=onesided
    )
    return nn.transpose(y, back)


@reads("STFT")
def stft(
    call: Call,
    signal: Tensor,
    frame_step: Number,
    window: Operand | None = None,
    frame_length: Number | None = None,
    *,
    onesided: bool,
) -> Results:
    """Fourier transforms of windows of a signal."""
    size, step = known_shape(signal)[1], int(frame_step)
    length = known_shape(window)[0] if window is not None else int(frame_length or 0)
    if not 0 < length <= size or step < 1:
        raise ShapeError(f"frames of {length} of {size} numbers in steps of {step}")
    first = np.arange((size - length) // step + 1) * step
    at = first[:, None] + np.arange(length)
    frames = taken_along(call, signal, 1, at)
    if window is not None:
        frames = math.multiply(frames, nn.reshape(window, (length, 1)))
    return _transformed(frames, None, inverse=False, onesided=onesided)
