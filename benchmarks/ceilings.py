"""Machine limits, measured in the same run as what is compared with them.

Each limit is a loop of textual LLVM IR: fused multiply-adds or Threefry's mix of adds,
rotations and xors in registers, or temporal and non-temporal store streams. The clock
is derived from a chain of dependent additions, one per cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.tuner.limits import loops

LANES: Final = 16
CHAINS: Final = 24


def _fma(n: int) -> list[str]:
    v = f"<{LANES} x float>"
    half = f"{v} splat (float 0.5)"
    return [f"  %y{n} = call {v} @llvm.fma({v} %x{n}, {half}, {half})"]


def _mix(n: int) -> list[str]:
    v = f"<{LANES} x i32>"
    key = f"{v} splat (i32 {2654435761 + n})"
    return [
        f"  %a{n} = add {v} %x{n}, {key.removeprefix(v + ' ')}",
        f"  %r{n} = call {v} @llvm.fshl({v} %a{n}, {v} %a{n}, {v} splat (i32 13))",
        f"  %y{n} = xor {v} %r{n}, splat (i32 {n + 77})",
    ]


def _stream(name: str, hint: str) -> str:
    body = f"""
  %p = getelementptr <{LANES} x i32>, ptr %out, i64 %i
  store <{LANES} x i32> splat (i32 7), ptr %p, align 64{hint}"""
    return loops.HEAD.format(name=name, entry="", body=body, exit="")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Limits for a number of threads: operations, bytes and cycles per second."""

    clock: float
    fma: float
    integer_mix: float
    fill: float
    nontemporal_fill: float


class Loops(loops.Loops):
    """The compiled loops; `ceilings` runs them."""

    def __init__(self) -> None:
        vector = f"<{LANES} x i32>"
        declarations = (
            f"declare {vector} @llvm.fshl({vector}, {vector}, {vector})\n"
            f"declare <{LANES} x float> @llvm.fma(<{LANES} x float>, "
            f"<{LANES} x float>, <{LANES} x float>)\n"
        ).replace("@llvm.fshl", f"@llvm.fshl.v{LANES}i32")
        declarations = declarations.replace("@llvm.fma", f"@llvm.fma.v{LANES}f32")
        text = (
            loops.dependent()
            + loops.chains("fma", f"<{LANES} x float>", _fma, CHAINS)
            + loops.chains("mix", vector, _mix, CHAINS)
        )
        text = text.replace("@llvm.fshl(", f"@llvm.fshl.v{LANES}i32(")
        text = text.replace("@llvm.fma(", f"@llvm.fma.v{LANES}f32(")
        text += _stream("fill", "") + _stream("ntfill", ", !nontemporal !0")
        text += declarations + "!0 = !{i32 1}\n"
        names = ("clock", "fma", "mix", "fill", "ntfill")
        super().__init__(text, names)


def ceilings(threads: int, *, rounds: int = 5, fill_bytes: int = 64 << 20) -> Ceilings:
    """Measure the limits with `threads` threads: the best of several rounds."""
    limits = Loops()
    steps, small = 2_000_000, CHAINS * LANES * 4
    lines = fill_bytes // 64 // threads

    def rate(name: str, count: int, work: float, size: int = small) -> float:
        times = (limits.run(name, count, threads, size) for _ in range(rounds))
        return work * count * threads / min(times)

    return Ceilings(
        clock=rate("clock", steps, 64) / threads,
        fma=rate("fma", steps, 2 * LANES * CHAINS),
        integer_mix=rate("mix", steps, 3 * LANES * CHAINS),
        fill=rate("fill", lines, 64, lines * 64),
        nontemporal_fill=rate("ntfill", lines, 64, lines * 64),
    )
