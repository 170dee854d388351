"""Pooling windows along one dimension: at a fixed stride, or adaptive.

Both give as expressions which pixel an element of a window is, which windows cover a
pixel, and how many pixels a window has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ops.nn.windows import Windows


@frozen
class Steps:
    """Windows of one size at a fixed stride."""

    extent: int  # pixels of the image
    count: int  # number of windows
    kernel: int  # elements of a window
    stride: int  # step from window to window
    dilation: int  # step within a window
    low: int  # padding before the image
    high: int  # padding after it

    @property
    def around(self) -> int:
        """The most windows that span a pixel."""
        return -(-((self.kernel - 1) * self.dilation + 1) // self.stride)

    @property
    def reached(self) -> int:
        """Pixels spanned by all windows, including padding."""
        return (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    @property
    def fill(self) -> bool:
        """Whether each window has a pixel of the image.

        Only elements further apart than the image is large can have none.
        """
        if self.dilation <= max(self.extent, 1):
            return True
        taps = self.dilation * np.arange(self.kernel) - self.low
        places = self.stride * np.arange(self.count)[:, None] + taps
        inside = (places >= 0) & (places < self.extent)
        return bool(inside.any(1).all())

    def place(self, window: ir.Expr, tap: ir.Expr) -> ir.Expr:
        """The index of a window element in the padded image."""
        return window * self.stride + tap * self.dilation

    def has(self, window: ir.Expr, tap: ir.Expr) -> ir.Expr:
        """Whether a window has this element; padding counts."""
        del window, tap
        return ir.as_expr(True)

    def last(self, pixel: ir.Expr) -> ir.Expr:
        """The last window that starts at or before a pixel."""
        return (pixel + self.low) // self.stride

    def hits(self, window: ir.Expr, tap: ir.Expr, pixel: ir.Expr) -> ir.Expr:
        """Whether a window's element is this pixel."""
        return (self.place(window, tap) - self.low).equal(pixel)

    def covers(self, window: ir.Expr, pixel: ir.Expr) -> ir.Expr:
        """Whether a window that starts before a pixel reaches it."""
        return pixel + self.low - window * self.stride < self.kernel

    def pixels(self, window: ir.Expr, *, padding: bool) -> ir.Expr:
        """The number of pixels of a window, with or without padding."""
        start = window * self.stride - self.low
        most = self.extent + self.high if padding else self.extent
        end = ir.binary("min", start + self.kernel, ir.as_expr(most))
        return end - (start if padding else ir.binary("max", start, ir.as_expr(0)))


@frozen
class Shares:
    """Adaptive windows: window `o` of `n` starts at pixel `o * extent // n`.

    It ends before `ceil((o + 1) * extent / n)`: neighbours may share a pixel.
    """

    extent: int
    count: int

    @property
    def kernel(self) -> int:
        """Pixels of the longest window.

        Before rounding, a window starts `o * extent % count` of `count` fractions into
        a pixel, a multiple of the greatest common divisor: at most `count - gcd`.
        """
        latest = self.count - math.gcd(self.count, self.extent)
        return -(-(latest + self.extent) // self.count)

    @property
    def around(self) -> int:
        """The most windows that contain a pixel."""
        return -(-self.count // self.extent) + 1

    @property
    def low(self) -> int:
        """Padding before the image: none."""
        return 0

    @property
    def reached(self) -> int:
        """The whole image."""
        return self.extent

    def _start(self, window: ir.Expr) -> ir.Expr:
        return window * self.extent // self.count

    def _end(self, window: ir.Expr) -> ir.Expr:
        return ((window + 1) * self.extent + self.count - 1) // self.count

    def place(self, window: ir.Expr, tap: ir.Expr) -> ir.Expr:
        """The index of a window element, clamped to the window's last one."""
        return ir.binary("min", self._start(window) + tap, self._end(window) - 1)

    def has(self, window: ir.Expr, tap: ir.Expr) -> ir.Expr:
        """Whether a window has this element."""
        return self._start(window) + tap < self._end(window)

    def last(self, pixel: ir.Expr) -> ir.Expr:
        """The last window that starts at or before a pixel."""
        return ((pixel + 1) * self.count - 1) // self.extent

    def hits(self, window: ir.Expr, tap: ir.Expr, pixel: ir.Expr) -> ir.Expr:
        """Whether a window's element is this pixel."""
        return self.place(window, tap).equal(pixel)

    def covers(self, window: ir.Expr, pixel: ir.Expr) -> ir.Expr:
        """Whether a window that starts before a pixel reaches it."""
        return pixel < self._end(window)

    def pixels(self, window: ir.Expr, *, padding: bool) -> ir.Expr:
        """The number of pixels of a window."""
        del padding
        return self._end(window) - self._start(window)


Slide: TypeAlias = Steps | Shares


def steps(
    slid: Windows, size: Sequence[int], counts: Sequence[int]
) -> tuple[Steps, ...]:
    """The windows along each dimension, of images of a size."""
    of = slid.size, slid.stride, slid.dilation, slid.padding[::2], slid.padding[1::2]
    return tuple(map(Steps, size, counts, *of))


def at_fixed_stride(slid: Sequence[Slide]) -> list[Steps]:
    """The windows, of which none is adaptive."""
    return [s for s in slid if isinstance(s, Steps)]
