"""Dot product instructions of CPUs, a row each: all that is known of them is here.

A row adds `group` products to each of `lanes` sums. From it follow the native of the IR
(`tensorlang.ir.cpu_natives`), its loop nests and layouts
(`tensorlang.scheduling.dot_intrinsics`), the code (`tensorlang.codegen.llvm`), the
schedules that use it, and what a machine is taken to have (`tensorlang.machine`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class DotProduct:
    """An instruction: `sums[l] += a[l, 0] * b[l, 0] + ... + a[l, g-1] * b[l, g-1]`.

    Attributes:
        name: The native's name, and the beginning of its tensor intrinsics' names.
        sums: Type of the sums.
        a: Type of the first factors.
        b: Type of the second factors.
        lanes: Number of sums.
        group: Number of products per sum, adjacent in memory.
        llvm: The LLVM intrinsic.
        features: The processor features that it needs, by Linux's names.
    """

    name: str
    sums: str
    a: str
    b: str
    lanes: int
    group: int
    llvm: str
    features: tuple[str, ...]

    def fits(self, features: Collection[str]) -> bool:
        """Whether a processor with these features has it."""
        return not {*self.features} - {*features}


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


_BF16, _UNSIGNED, _SIGNED = (
    ("f32", "bf16", "bf16"),
    ("i32", "u8", "i8"),
    ("i32", "i8", "i8"),
)
_ROWS: Final = (
    # name, types, lanes, group, LLVM intrinsic, features; the widest first
    _row("dpbf16ps", _BF16, 16, 2, "x86.avx512bf16.dpbf16ps.512", "avx512_bf16"),
    _row("dpbusd", _UNSIGNED, 16, 4, "x86.avx512.vpdpbusd.512", "avx512_vnni"),
    _row("dpbusd_256", _UNSIGNED, 8, 4, "x86.avx512.vpdpbusd.256", "avx_vnni"),
    _row("dpbssd_256", _SIGNED, 8, 4, "x86.avx2.vpdpbssd.256", "avx_vnni_int8"),
    _row("usdot", _UNSIGNED, 4, 4, "aarch64.neon.usdot.v4i32.v16i8", "asimd i8mm"),
    _row("sdot", _SIGNED, 4, 4, "aarch64.neon.sdot.v4i32.v16i8", "asimd asimddp"),
)
DOT_PRODUCTS: Final = {row.name: row for row in _ROWS}


def dot_product(
    features: Collection[str], factors: Collection[str]
) -> DotProduct | None:
    """The widest instruction of a processor for factors of two types, in any order."""
    for row in DOT_PRODUCTS.values():
        if row.fits(features) and sorted((row.a, row.b)) == sorted(factors):
            return row
    return None
