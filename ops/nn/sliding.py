"""How the windows of a pooling lie: at a fixed step, or shared out evenly.

Both tell the same things of one dimension, as expressions: which pixel an element of a
window is, which windows are around a pixel, how many pixels a window has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tensorlang.ir import as_expr
from tensorlang.ir.nodes import binary

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr


@dataclass(frozen=True, slots=True)
class Steps:
    """Windows of one size at a fixed step.

    Attributes:
        extent: Pixels of the image.
        count: Windows.
        kernel: Elements of a window.
        stride: The step from window to window.
        dilation: The step within a window.
        low: Padding before the image.
        high: Padding behind it.
    """

    extent: int
    count: int
    kernel: int
    stride: int
    dilation: int
    low: int
    high: int

    @property
    def around(self) -> int:
        """The most windows that reach over a pixel."""
        return -(-((self.kernel - 1) * self.dilation + 1) // self.stride)

    @property
    def reached(self) -> int:
        """Pixels that the windows reach over, padding included."""
        return (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    def place(self, window: Expr, tap: Expr) -> Expr:
        """A window's element in the padded image."""
        return window * self.stride + tap * self.dilation

    def has(self, window: Expr, tap: Expr) -> Expr:
        """Whether a window has such an element; padding counts as one."""
        del window, tap
        return as_expr(True)

    def last(self, pixel: Expr) -> Expr:
        """The last window that starts at or before a pixel."""
        return (pixel + self.low) // self.stride

    def hits(self, window: Expr, tap: Expr, pixel: Expr) -> Expr:
        """Whether a window's element is this pixel."""
        return (self.place(window, tap) - self.low).equal(pixel)

    def covers(self, window: Expr, pixel: Expr) -> Expr:
        """Whether a window that starts before a pixel reaches it."""
        return pixel + self.low - window * self.stride < self.kernel

    def pixels(self, window: Expr, *, padding: bool) -> Expr:
        """The pixels of a window, those of the padding with them or not."""
        start = window * self.stride - self.low
        most = self.extent + self.high if padding else self.extent
        end = binary("min", start + self.kernel, as_expr(most))
        return end - (start if padding else binary("max", start, as_expr(0)))


@dataclass(frozen=True, slots=True)
class Shares:
    """As many windows as asked for: `o` of `n` starts at pixel `o * extent // n`.

    It ends before `ceil((o + 1) * extent / n)`: neighbours may share a pixel.
    """

    extent: int
    count: int

    @property
    def kernel(self) -> int:
        """Pixels of the longest window.

        Windows start `o * extent % count` of a pixel's `count` parts behind its start:
        at most the greatest common divisor before its end.
        """
        latest = self.count - math.gcd(self.count, self.extent)
        return -(-(latest + self.extent) // self.count)

    @property
    def around(self) -> int:
        """The most windows that have a pixel."""
        return -(-self.count // self.extent) + 1

    @property
    def low(self) -> int:
        """Padding before the image: none."""
        return 0

    @property
    def reached(self) -> int:
        """The whole image."""
        return self.extent

    def _start(self, window: Expr) -> Expr:
        return window * self.extent // self.count

    def _end(self, window: Expr) -> Expr:
        return ((window + 1) * self.extent + self.count - 1) // self.count

    def place(self, window: Expr, tap: Expr) -> Expr:
        """A window's element; of a short window, the last one again."""
        return binary("min", self._start(window) + tap, self._end(window) - 1)

    def has(self, window: Expr, tap: Expr) -> Expr:
        """Whether a window has such an element."""
        return self._start(window) + tap < self._end(window)

    def last(self, pixel: Expr) -> Expr:
        """The last window that starts at or before a pixel."""
        return ((pixel + 1) * self.count - 1) // self.extent

    def hits(self, window: Expr, tap: Expr, pixel: Expr) -> Expr:
        """Whether a window's element is this pixel."""
        return self.place(window, tap).equal(pixel)

    def covers(self, window: Expr, pixel: Expr) -> Expr:
        """Whether a window that starts before a pixel reaches it."""
        return pixel < self._end(window)

    def pixels(self, window: Expr, *, padding: bool) -> Expr:
        """The pixels of a window."""
        del padding
        return self._end(window) - self._start(window)


Slide: TypeAlias = Steps | Shares


def slides(  # noqa: PLR0917 - as a workload has them
    size: Sequence[int],
    results: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[Slide, ...]:
    """The windows along each dimension; shares of the image without a kernel."""
    if not kernel:
        return tuple(map(Shares, size, results))
    return tuple(
        map(
            Steps,
            size,
            results,
            kernel,
            stride,
            dilation,
            padding[::2],
            padding[1::2],
        )
    )
