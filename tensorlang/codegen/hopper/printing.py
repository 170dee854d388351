"""What the template of these instructions asks of the launch that it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tensorlang.codegen.hopper.effects import TensorMap
from tensorlang.ir.gpu_effects import GPU_EFFECTS

if TYPE_CHECKING:
    from tensorlang.codegen.simt.host import Launch
    from tensorlang.ir.nodes import Buffer


def helpers(launch: Callable[[], Launch]) -> dict[str, object]:
    """Functions for the template, on the launch at hand.

    `map_name` is a tensor map's name in the source, `shared_offset` where a buffer lies
    in the memory that the launch asks for, or None, `shared_alignment` what a buffer of
    the kernel's own is aligned to, in bytes.
    """

    def map_name(given: TensorMap) -> str:
        maps = launch().tensor_maps
        same = [other for other in maps if other.buffer == given.buffer]
        number = same.index(given)
        return f"{given.buffer.name}_map" + (f"_{number}" if number else "")

    def shared_offset(buffer: Buffer) -> int | None:
        return launch().shared_offsets.get(buffer)

    def shared_alignment() -> int:
        return 1024 if launch().tensor_maps else 16

    return {
        "effects": GPU_EFFECTS,
        "map_of": TensorMap.of,
        "map_name": map_name,
        "shared_offset": shared_offset,
        "shared_alignment": shared_alignment,
    }
