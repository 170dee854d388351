"""Helper functions of the Hopper template."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tensorlang.codegen.hopper.effects import TensorMap, tensor_maps
from tensorlang.ir.gpu_effects import GPU_EFFECTS

if TYPE_CHECKING:
    from tensorlang.codegen.simt.host import Launch
    from tensorlang.ir.nodes import Buffer


def helpers(launch: Callable[[], Launch]) -> dict[str, object]:
    """Helper functions for the launch being printed.

    `copies_of`: tensor maps of the bulk copies below a node. `map_name`: name of a
    tensor map in the source. `shared_offset`: a buffer's offset in dynamic shared
    memory, or None. `shared_alignment`: alignment of static shared buffers, in bytes.
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
        "copies_of": tensor_maps,
        "map_of": TensorMap.of,
        "map_name": map_name,
        "shared_offset": shared_offset,
        "shared_alignment": shared_alignment,
    }
