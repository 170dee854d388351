"""f16 and bf16 convolutions on tensor cores whose channels are not the last dimension.

    sums[b, o, i, j] += x[b, c, i + u, j + v] * w[o, c, u, v]

        x_global[b, i, j, c] = x[b, c, i, j]          # once, in square tiles
    w_global[o, u, v, c] = w[o, c, u, v]
    sums[b, o, i, j] += x_global[b, i + u, j + v, c] * w_global[o, u, v, c]

Staging then copies 16 bytes of neighbouring channels at once, asynchronously; of
neighbouring pixels each element would be a separate load.
"""

from __future__ import annotations

from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Load, Var
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.edges import padding_stage
from tensorlang.schedules.simt.grid import per_thread
from tensorlang.schedules.simt.tensor_contractions import tensor_contractions
from tensorlang.schedules.simt.tensor_cores import NEEDED
from tensorlang.schedules.simt.transpose import transposed
from tensorlang.schedules.stages import Stage, extent_of
from tensorlang.scheduling import Knobs, Schedule

_NARROW: Final = {"f16", "bf16"}
_CHUNK: Final = 16  # channels copied, and multiplied, at once
_THREADS: Final = 256


def channels_last(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Schedule a contraction that slides over one operand, transposing both first.

    Raises:
        ScheduleError: the target has no tensor cores, or the stage is not of this form,
            or its channels are last already.
    """
    if s.target is None or not NEEDED.issubset(s.target.features):
        raise ScheduleError("the target has no tensor cores")
    copies = [
        _channels_last_copy(s, stage, load, channel)
        for load, channel in _channels(stage)
        if load.indices[-1] != channel
    ]
    if not copies:
        raise ScheduleError(f"the channels of {stage.name} come last")
    ready = stage_named(s, stage.name)
    assert ready is not None
    tensor_contractions(s, knobs, ready)
    for copy in copies:
        found = stage_named(s, copy)
        assert found is not None
        if not s.attempt(transposed, s, knobs, found):
            per_thread(s, [loop.var.name for loop in found.loops], _THREADS)


def _channels(stage: Stage) -> list[tuple[Load, Var]]:
    """The operands, each with the axis of its channels.

    For the image, that is the last reduction axis that is a plain index of it. The
    other operand has the same axis or, depthwise, channels of the result.
    """
    types = {load.buffer.dtype.name for load in stage.loads}
    if len(stage.loads) != 2 or not types <= _NARROW:
        raise ScheduleError("tensor cores need two operands of f16 or of bf16")
    image, other = sorted(stage.loads, key=lambda load: not _slides(load))
    if not _slides(image) or _slides(other):
        raise ScheduleError(f"{stage.name} slides over nothing, or over both operands")
    plain = [index for index in image.indices[1:] if isinstance(index, Var)]
    own = [
        stage.axis(loop)
        for loop in stage.driven("spatial")
        if stage.axis(loop) in other.indices
    ]
    known = {stage.axis(loop): extent_of(loop) or 1 for loop in stage.loops}
    channel = plain[-1] if plain else None
    found = [channel] if channel in other.indices else own[-1:]
    if (
        channel is None
        or not found
        or any(known[x] % _CHUNK for x in (channel, *found))
    ):
        raise ScheduleError(f"{stage.name} has no channels in multiples of {_CHUNK}")
    return [(image, channel), (other, found[0])]


def _slides(load: Load) -> bool:
    return any(len(free_vars(index)) > 1 for index in load.indices)


def _channels_last_copy(s: Schedule, stage: Stage, load: Load, channel: Var) -> str:
    """Copy an operand with its channels last; returns the copying block.

    Zero padding of the operand is fused into the copy.
    """
    at = load.indices.index(channel)
    order = [*(d for d in range(load.buffer.ndim) if d != at), at]
    framed = padding_stage(s, load.buffer)
    reader, source = stage.name, load.buffer
    if framed is not None:
        s.permute_dims(source.name, order)
        reader, source = framed.name, framed.loads[0].buffer
    copy, made = s.cache_read(reader, source.name, "global")
    s.permute_dims(made, order)
    return copy
