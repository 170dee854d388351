"""`cache_read`: copies of a block's operands near their use; also packing."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import names, reads, writes
from tensorlang.ir.visit import fresh, walk
from tensorlang.scheduling.analysis.guarding import (
    carried_guards,
    carries_all,
    wholly_written,
)
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.places import Site, need_alive, site
from tensorlang.scheduling.analysis.regions import Region, region, whole
from tensorlang.scheduling.analysis.tiles import (
    Localizer,
    copy_over,
    need_known,
    retarget,
    tile_of,
)
from tensorlang.scheduling.analysis.tree import find_buffer
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.memory import outside_of_threads


@legality("a cached buffer does not change while the copy is in use")
def unchanged_while_read(place: Site, buffer: ir.Buffer) -> str | None:
    """The nest that reads the copy does not write the original."""
    if buffer not in writes(place.child):
        return None
    return (
        f"block {place.block.name!r} cannot read a copy of {buffer.name!r}: the nest "
        f"around it {_under(place)} writes {buffer.name!r} too; cache under a loop "
        "whose body only reads it"
    )


@legality("a tile has a constant size")
def constant_tile(buffer: ir.Buffer, part: Region, scope: str) -> str | None:
    """Only `global` memory can be allocated with a dynamic size."""
    if scope == "global" or all(r.extent.is_constant for r in part):
        return None
    shape = ", ".join(repr(r.extent.expr()) for r in part)
    return (
        f"a copy of {buffer.name!r} in {scope!r} needs a constant size, and this one "
        f"is [{shape}]; split the loops by constants and cache further in"
    )


@legality("only written elements are copied")
def written_only(place: Site, buffer: ir.Buffer, part: Region) -> str | None:
    """A temporary is fully written, or the reader's accesses are known exactly."""
    if wholly_written(place, buffer, part):
        return None
    if any(isinstance(node, (ir.If, ir.While)) for node in place.path[place.depth :]):
        return (
            f"block {place.block.name!r} reads {buffer.name!r} under a condition, and "
            "the copy would be made without it; cache it at a loop inside"
        )
    if carries_all(place, buffer):
        return None
    return (
        f"not all of {buffer.name!r} is known to be written, and block "
        f"{place.block.name!r} reads it by more than plain axes; cache it elsewhere, "
        "or reindex the block first"
    )


def _under(place: Site) -> str:
    return f"under loop {place.at.var.name!r}" if place.at else "in the function"


@primitive
def cache_read(
    func: ir.Function, block: str, buffer: str, scope: str, at: str | None = None
) -> tuple[ir.Function, tuple[str, str]]:
    """Copy what `block` reads of `buffer` into a new buffer, and read that.

    Args:
        block: The reader.
        buffer: A parameter or temporary it reads.
        scope: The memory of the copy: `global`, `shared`, `register`, `private`.
        at: The loop in whose body to copy the region read there. By default the whole
            buffer is copied by a nest of its own before the reader's.

    Returns:
        The function, and the names of the copying block and of the new buffer.

    Raises:
        ScheduleError: the nest writes the buffer, or the size is not constant.

    Before:

        for i in range(2):
            for j in range(32):
                with block("y", vi=spatial(50, i * 32 + j), where=i * 32 + j < 50):
                    y[vi] = x[vi] * 2.0

    After `cache_read("y", "x", "shared", at="i")`:

        for i in range(2):
            x_shared = alloc(f32[32], scope="shared")
            for i_1 in range(32):
                with block("x_shared_copy", vi_1=spatial(50, i * 32 + i_1),
                           vi_1_in=spatial(32, i_1), where=i * 32 + i_1 < 50):
                    x_shared[vi_1_in] = x[vi_1]
            for j in range(32):
                with block("y", vi=spatial(50, i * 32 + j), vi_in=spatial(32, j),
                           where=i * 32 + j < 50):
                    y[vi] = x_shared[vi_in] * 2.0
    """
    place, source = site(func, block, at), find_buffer(func, buffer)
    _need_use(place, source, reads(place.block.body), "read")
    need_alive(place, source)
    part = whole(source) if at is None else _read_region(place, source)
    constant_tile(source, part, scope)
    unchanged_while_read(place, source)
    written_only(place, source, part)
    taken = names(func)
    tile = tile_of(source, part, fresh(f"{buffer}_{scope}", taken), scope)
    outside_of_threads(tile, place.outer)
    name = fresh(f"{tile.name}_copy", taken)
    indices = _first_read(place.block, source)
    copy = copy_over(source, part, place.outer_ranges, taken, indices)
    if not wholly_written(place, source, part):
        copy = copy.guarded(carried_guards(place, indices, copy))
    fill = copy.nest(name, ir.Store(tile, copy.local, ir.Load(source, copy.at)))
    reader = localized(place, place.block, {source: tile}, part, taken, reading=True)
    made = place.with_block(reader).beside((ir.Alloc(tile), fill))
    return made, (name, tile.name)


def _first_read(block: ir.Block, source: ir.Buffer) -> tuple[ir.Expr, ...]:
    """The indices of the first load of a buffer."""
    loads = (n for n in walk(block.body) if isinstance(n, ir.Load))
    return next(load.indices for load in loads if load.buffer == source)


def _read_region(place: Site, source: ir.Buffer) -> Region:
    """The region that the block reads, as seen from the site."""
    found = region(place.block, source, writes=False, ranges=place.inner_ranges)
    return need_known(found, f"{place.block.name!r} does not read {source.name!r}")


def _need_use(
    place: Site, buffer: ir.Buffer, used: frozenset[ir.Buffer], verb: str
) -> None:
    if buffer not in used:
        raise ScheduleError(
            f"block {place.block.name!r} does not {verb} {buffer.name!r}"
        )


def localized(
    place: Site,
    block: ir.Block,
    tiles: Mapping[ir.Buffer, ir.Buffer],
    part: Region,
    taken: set[str],
    *,
    reading: bool,
) -> ir.Block:
    """The block, reading (or writing) the tiles instead of the buffers."""
    local = Localizer(block, place.inner_ranges, place.outer_extents, taken)

    def move(indices: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        pairs = zip(indices, part, strict=True)
        return tuple(local.index(index, own.low) for index, own in pairs)

    body = retarget(block, tiles, move, reads=reading, writes=not reading)
    return local.finish(body)
