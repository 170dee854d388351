"""Helper functions of the Hopper template."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tensorlang.codegen.hopper.effects import TensorMap, dimensions, tensor_maps
from tensorlang.ir.contents import contents
from tensorlang.ir.gpu_effects import GPU_EFFECTS

if TYPE_CHECKING:
    from tensorlang.codegen.simt.host import Launch
    from tensorlang.ir.nodes import Buffer, Call, Expr


def helpers(launch: Callable[[], Launch]) -> dict[str, object]:
    """Helper functions for the launch being printed.

    `copies_of`: tensor maps of the bulk copies below a node. `map_name`: name of a
    tensor map in the source. `shared_offset`: a buffer's offset in dynamic shared
    memory, or None. `shared_alignment`: alignment of static shared buffers, in bytes.
    `corner_of`: where a bulk copy's box starts; `corner_names`: its names by dimension.
    """

    def map_name(given: TensorMap) -> str:
        maps = launch().tensor_maps
        same = [other for other in maps if other.buffer == given.buffer]
        number = same.index(given)
        return f"{given.buffer.name}_map" + (f"_{number}" if number else "")

    def shared_offset(buffer: Buffer) -> int | None:
        return launch().shared_offsets.get(buffer)

    def shared_alignment() -> int:
        calls = contents(launch().nest).calls
        swizzled = launch().tensor_maps or "warpgroup_product" in calls
        return 1024 if swizzled else 16

    def corner_of(copy: Call) -> tuple[Expr, ...]:
        return dimensions(copy)[0]

    def corner_names(rank: str) -> list[str]:
        more = range(int(rank.removesuffix("d")) - 2)
        return [*(f"at{n}" for n in more), "row", "column"]

    return {
        "effects": GPU_EFFECTS,
        "corner_of": corner_of,
        "corner_names": corner_names,
        "copies_of": tensor_maps,
        "map_of": TensorMap.of,
        "map_name": map_name,
        "shared_offset": shared_offset,
        "shared_alignment": shared_alignment,
    }
