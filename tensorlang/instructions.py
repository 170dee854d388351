"""Dot and matrix product instructions of CPUs, a row each: all that is known of them.

A dot product adds `group` products to each of `lanes` sums. A matrix product does so
`steps` times for each of several rows of sums. From a row follow the native of the IR
(`tensorlang.ir.cpu_natives`), its loop nests and layouts
(`tensorlang.scheduling.intrinsics.dots`), the code (`tensorlang.codegen.llvm`), the
schedules that use it, and what a machine is taken to have (`tensorlang.machine`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tensorlang.frozen import frozen


@frozen
class DotProduct:
    """An instruction: `sums[l] += a[l, 0] * b[l, 0] + ... + a[l, g-1] * b[l, g-1]`.

    Attributes:
        name: The native's name, and the beginning of its tensor intrinsics' names.
        sums: Type of the sums.
        a: Type of the first factors.
        b: Type of the second factors.
        lanes: Number of sums, of one row.
        group: Number of products per sum and step, adjacent in memory.
        llvm: The LLVM intrinsic.
        features: The processor features that it needs, by Linux's names.
        steps: Number of groups that are added to each sum.
        rows: The most rows of a tile of sums.
    """

    name: str
    sums: str
    a: str
    b: str
    lanes: int
    group: int
    llvm: str
    features: tuple[str, ...]
    steps: int = 1
    rows: int = 1

    @property
    def depth(self) -> int:
        """Number of products added to each sum."""
        return self.steps * self.group

    def fits(self, features: Collection[str]) -> bool:
        """Whether a processor with these features has it."""
        return not {*self.features} - {*features}


@frozen
class MatrixProduct(DotProduct):
    """An instruction on tiles: `sums[m, l] += a[m, s, 0] * b[s, l, 0] + ...`.

    The sums are `rows` by `lanes`, the first factors `rows` by `steps * group`, the
    second ones `steps` by `lanes` by `group`.
    """


def _row(  # noqa: PLR0917 - the columns of a table
    name: str,
    types: tuple[str, str, str],
    lanes: int,
    group: int,
    llvm: str,
    needs: str,
) -> DotProduct:
    features = tuple(needs.split())
    return DotProduct(name, *types, lanes, group, f"llvm.{llvm}", features)


_BF16 = ("f32", "bf16", "bf16")
_MIXED = ("i32", "u8", "i8")
_SIGNED = ("i32", "i8", "i8")
_UNSIGNED = ("i32", "u8", "u8")
_ROWS: Final = (
    # name, types, lanes, group, LLVM intrinsic, features; the widest first
    _row("dpbf16ps", _BF16, 16, 2, "x86.avx512bf16.dpbf16ps.512", "avx512_bf16"),
    _row("dpbusd", _MIXED, 16, 4, "x86.avx512.vpdpbusd.512", "avx512_vnni"),
    _row("dpbusd_256", _MIXED, 8, 4, "x86.avx512.vpdpbusd.256", "avx_vnni"),
    _row("dpbssd_256", _SIGNED, 8, 4, "x86.avx2.vpdpbssd.256", "avx_vnni_int8"),
    _row("dpbuud_256", _UNSIGNED, 8, 4, "x86.avx2.vpdpbuud.256", "avx_vnni_int8"),
    _row("usdot", _MIXED, 4, 4, "aarch64.neon.usdot.v4i32.v16i8", "asimd i8mm"),
    _row("sdot", _SIGNED, 4, 4, "aarch64.neon.sdot.v4i32.v16i8", "asimd asimddp"),
    _row("udot", _UNSIGNED, 4, 4, "aarch64.neon.udot.v4i32.v16i8", "asimd asimddp"),
)
DOT_PRODUCTS: Final = {row.name: row for row in _ROWS}


def _amx(name: str, types: str, feature: str) -> MatrixProduct:
    """A row of AMX: tiles of 16 rows of 64 bytes, of groups of 4 bytes."""
    sums, a, b = types.split()
    group = 2 if sums == "f32" else 4
    needs = ("amx_tile", feature)
    llvm = f"llvm.x86.{name}.internal"
    return MatrixProduct(name, sums, a, b, 16, group, llvm, needs, steps=16, rows=16)


_TILES: Final = (
    _amx("tdpbf16ps", "f32 bf16 bf16", "amx_bf16"),
    _amx("tdpfp16ps", "f32 f16 f16", "amx_fp16"),
    _amx("tdpbssd", "i32 i8 i8", "amx_int8"),
    _amx("tdpbsud", "i32 i8 u8", "amx_int8"),
    _amx("tdpbusd", "i32 u8 i8", "amx_int8"),
    _amx("tdpbuud", "i32 u8 u8", "amx_int8"),
)
MATRIX_PRODUCTS: Final = {row.name: row for row in _TILES}


def matrix_product(
    features: Collection[str], factors: tuple[str, str]
) -> MatrixProduct | None:
    """The matrix product of a processor for factors of two types, in this order."""
    for row in MATRIX_PRODUCTS.values():
        if row.fits(features) and (row.a, row.b) == factors:
            return row
    return None


def dot_product(
    features: Collection[str], factors: Collection[str]
) -> DotProduct | None:
    """The widest instruction of a processor for factors of two types, in any order."""
    for row in DOT_PRODUCTS.values():
        if row.fits(features) and sorted((row.a, row.b)) == sorted(factors):
            return row
    return None
