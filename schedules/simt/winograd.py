"""Winograd convolution on threads: one tile's transform each, then products."""

from __future__ import annotations

from tensorlang.schedules.simt.generic import generic
from tensorlang.scheduling import Knobs, Schedule, schedule


@schedule("conv", algorithm="winograd43_nonfused", model="simt")
def winograd43(s: Schedule, knobs: Knobs) -> None:
    """F(4, 3)."""
    generic(s, knobs)


@schedule("conv", algorithm="winograd23_nonfused", model="simt")
def winograd23(s: Schedule, knobs: Knobs) -> None:
    """F(2, 3)."""
    generic(s, knobs)
