"""Small shapes in place of large ones that expose edge cases: odd, 1, empty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang.errors import TensorlangError

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.workload import Workload

# the name of each dimension of each input, None if its size is fixed
Names: TypeAlias = tuple[tuple[str | None, ...], ...]
KINDS: Final = ("odd", "single", "empty")
_FIXED: Final = {"single": 1, "empty": 0}  # for the longest dimension
_ODD: Final = (5, 13, 37, 3, 7, 2, 11)
_LONG: Final = 2053  # longer than a vector, shorter than a chunk
_SMALLEST_LONG: Final = 1 << 14
_LONGER: Final = 16  # factor, for kernels that treat short rows separately
_SMALLEST: Final = 3  # smaller sizes are kept
_NEAR: Final = 5  # extents this close differ by the size of a window
_FEW: Final = 4


def batches(
    workload: Workload, names: Names, scale: int = 1, *, near: bool = False
) -> Iterator[Workload]:
    """The workload with its symbolic sizes odd, 1 and 0.

    Args:
        workload: The workload.
        names: Which sizes are symbolic.
        scale: A factor of odd sizes.
        near: Whether sizes that differ a little still do so, as of states before and
            after steps.
    """
    extents = {
        name: extent
        for shape, called in zip(workload.shapes, names, strict=True)
        for extent, name in zip(shape, called, strict=True)
        if name is not None
    }
    if not extents:
        return
    odd = tuple(n * scale for n in _ODD)
    for small in (odd, (1,) * len(_ODD), (0,) * len(_ODD)):
        sizes: dict[str, int] = {}
        for (name, extent), size in zip(extents.items(), small, strict=False):
            apart = {n: extent - extents[n] for n in sizes}
            like = (n for n, far in apart.items() if near and 0 < abs(far) < _NEAR)
            other = next(like, None)
            sizes[name] = size if other is None else max(sizes[other] + apart[other], 0)
        shapes = (
            tuple(
                extent if name is None else _odd(extent, sizes[name])
                for extent, name in zip(shape, called, strict=True)
            )
            for shape, called in zip(workload.shapes, names, strict=True)
        )
        yield workload.with_shapes(*shapes)


def served_workloads(op: Operator, workload: Workload) -> Iterator[Workload]:
    """Small workloads served by the same kernel: odd, 1 and empty ones."""
    of, names = op.function(workload), op.names(workload)
    every = chain(
        batches(workload, names),
        batches(workload, names, _LONGER),
        batches(workload, names, near=True),
        # if a product of sizes is fixed, they are not independent
        *(batches(workload, _only(n, names)) for n in dict.fromkeys(chain(*names))),
    )
    for small in dict.fromkeys(every):
        try:
            if small != workload and op.function(small) == of:
                yield small
        except TensorlangError:  # sizes that the operator rejects
            pass


def _only(name: str | None, names: Names) -> Names:
    """The names of dimensions, restricted to one size."""
    return tuple(tuple(n if n == name else None for n in each) for each in names)


def _odd(extent: int, small: int) -> int:
    """A small size in place of an extent; longer than a vector if that is long."""
    return min(_LONG if extent >= _SMALLEST_LONG and small > 1 else small, extent)


def small_variants(op: Operator, workload: Workload, kind: str) -> Iterator[Workload]:
    """Small variants of a workload of one kind, in order of preference.

    The caller has to find out which of them the operator accepts, as sizes may depend
    on each other or on attributes; its declared preconditions are met. Odd variants end
    with the workload itself; integer attributes are first kept, then made small too.
    """
    seen = {workload}
    odd = kind == "odd"
    for mapped in _mappings(list(_extents(workload, held=odd)), kind):
        for held in (False, True) if odd else (False,):
            fitted = op.declared.fitted(_mapped(workload, mapped, held=held))
            if fitted not in seen:
                seen.add(fitted)
                yield fitted
    if odd:
        yield workload


def _extents(workload: Workload, *, held: bool) -> Iterable[int]:
    """The distinct extents, and those in attributes."""
    found = [n for shape in workload.shapes for n in shape]
    for _, value in workload.attributes if held else ():
        parts = value if isinstance(value, tuple) else (value,)
        found += [n for n in parts if type(n) is int and n > _SMALLEST]
    return dict.fromkeys(found)


def _mapped(workload: Workload, mapped: Mapping[int, int], *, held: bool) -> Workload:
    def small(value: object) -> Any:
        if isinstance(value, tuple):
            return tuple(map(small, value))
        return mapped.get(value, value) if type(value) is int else value

    attributes = ((name, small(value)) for name, value in workload.attributes)
    return replace(
        workload,
        shapes=tuple(map(small, workload.shapes)),
        attributes=tuple(attributes) if held else workload.attributes,
    )


def _mappings(extents: list[int], kind: str) -> Iterator[dict[int, int]]:
    """Mappings of extents to small ones: independent, then preserving relations."""
    longest = max(extents, default=0)
    if kind != "odd":
        fixed = {longest: min(_FIXED[kind], longest)}
        yield _independent(extents, 1) | fixed
        yield _related(extents, 1) | fixed
        return
    for scale in (1, 4, 16):
        yield _independent(extents, scale)
        yield _related(extents, scale)
        yield _related(extents, scale, _ODD[:1], few=1)
        for kept in extents if scale == 1 else ():  # an attribute may contain it
            yield _independent(extents, 1) | {kept: kept}


def _independent(extents: list[int], scale: int) -> dict[int, int]:
    return {n: _odd(n, _ODD[i % len(_ODD)] * scale) for i, n in enumerate(extents)}


def _related(
    extents: list[int], scale: int, sizes: Iterable[int] = _ODD, few: int = _FEW
) -> dict[int, int]:
    """Small extents that preserve differences and ratios."""
    found: dict[int, int] = {}
    odd = cycle(sizes)
    for n in sorted(extents):
        near = [m for m in found if m > _SMALLEST and n - m <= _NEAR and 4 * m > 3 * n]
        parts = [m for m in found if m > _SMALLEST and n % m == 0 and n // m <= few]
        if n <= _SMALLEST:
            found[n] = n
        elif near:
            found[n] = found[near[0]] + n - near[0]
        elif parts:
            found[n] = found[parts[0]] * (n // parts[0])
        else:
            found[n] = _odd(n, next(odd) * scale)
    return found
