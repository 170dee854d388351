"""Images as sums of products read them: line by line, by pixels, or flattened to rows.

A flattened image is one row with a pitch of as many elements per line as its padded
lines have, and so are the sums, junk between the lines included: vectors run across the
ends of lines. The sum at `q` reads the image at `q` plus a fixed offset per window
element. With a stride, the image is first split by `pixel % stride`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang import ir
from tensorlang.ops.nn.images import (
    SPATIAL,
    Layout,
    channels_last,
    padded,
    source,
    staged,
)
from tensorlang.ops.nn.windows import LAYOUTS

if TYPE_CHECKING:
    from tensorlang.ops.nn.convolution_sides import Side

Indices = tuple[Any, ...]
_SLACK: Final = 64  # elements past the end a register tile may read


class Lines:
    """Padded images in their own layout.

    Attributes:
        sides: Their dimensions.
        frame: The layout of the sums, and of the images.
        places: Extents of the sums.
        names: Loop names over them.
        aligned: Whether the sums have the results' indices.
    """

    def __init__(self, frame: Layout, sides: Sequence[Side]) -> None:
        self.sides, self.frame = sides, frame
        self.places: Sequence[int] = [side.lines for side in sides]
        self.names: Sequence[str] = SPATIAL[3 - len(sides) :]
        self.aligned = all(side.phases == 1 for side in sides)

    def laid(self, x: ir.Tensor, name: str = "padded") -> ir.Tensor:
        """The padded images; `x` itself if nothing is to be done."""
        low, extents = [s.before for s in self.sides], [s.extent for s in self.sides]
        return padded(x, self.frame, low, extents, name=name)

    def offsets(self, tap: Sequence[Any]) -> list[object]:
        """What the elements of a convolution's window add to a place."""
        pairs = zip(self.sides, tap, strict=True)
        return [side.offset(0, k) for side, k in pairs]

    def at(
        self, batch: Any, channels: Indices, place: Indices, offsets: Sequence[Any]
    ) -> Indices:
        """The index of a pixel, at `offsets` from what the sum at `place` reads."""
        pixel = [
            at * side.step + offset
            for side, at, offset in zip(self.sides, place, offsets, strict=True)
        ]
        return self.frame.joined((batch,), channels, pixel)

    def place(self, lines: Indices) -> Indices:
        """The place of the sum for a result of a phase."""
        return lines


class Pixels(Lines):
    """Padded images with channels last, for sums with all pixels in one dimension.

    The sums are those of a matrix product, without gaps between lines: the rows are
    pixels, the columns output channels.
    """

    def __init__(self, frame: Layout, sides: Sequence[Side]) -> None:
        super().__init__(Layout(LAYOUTS[len(sides)][1]), sides)
        self.given, self.images, self.frame = frame, self.frame, Layout("NWC")
        self.aligned = self.aligned and not frame.first and len(sides) == 1
        self.extents = [side.lines for side in sides]
        self.pitch = [math.prod(self.extents[at + 1 :]) for at in range(len(sides))]
        self.places, self.names = [math.prod(self.extents)], ["q"]

    def laid(self, x: ir.Tensor, name: str = "padded") -> ir.Tensor:
        """The padded images, channels last; `x` itself if nothing is to be done."""
        low, extents = [s.before for s in self.sides], [s.extent for s in self.sides]
        x = channels_last(x, self.given)
        return padded(x, self.images, low, extents, name=name)

    def at(
        self, batch: Any, channels: Indices, place: Indices, offsets: Sequence[Any]
    ) -> Indices:
        """The index of a pixel, at `offsets` from what the sum at `place` reads."""
        pixel = []
        for n, (side, offset) in enumerate(zip(self.sides, offsets, strict=True)):
            line = place[0] // self.pitch[n] if self.pitch[n] > 1 else place[0]
            line = line % self.extents[n] if n else line
            pixel.append(line * side.step + offset)
        return self.images.joined((batch,), channels, pixel)

    def place(self, lines: Indices) -> Indices:
        """The place of the sum for a result of a phase."""
        steps = [n * pitch for n, pitch in zip(lines, self.pitch, strict=True)]
        return (sum(steps[1:], steps[0]),)


class Rows(Lines):
    """Flattened images, channels first.

    Attributes:
        length: Elements of a row of sums, up to the end of the last line.
        copied: Whether they are copied: padded, strided, or in another element type.
    """

    def __init__(self, frame: Layout, sides: Sequence[Side], x: ir.Tensor) -> None:
        super().__init__(frame, sides)
        self.frame = Layout("NCW")
        self.extents = [max(-(-s.extent // s.step), s.lines) for s in sides]
        self.pitch = [math.prod(self.extents[at + 1 :]) for at in range(len(sides))]
        self.length = sides[0].lines * self.pitch[0]
        self.places, self.names = [self.length], ["q"]
        same = all(s.given == s.extent == s.lines and not s.most for s in sides)
        plain = same and len(sides) == 1
        self.copied = not plain or x.dtype.name in ir.NARROW
        self.aligned = self.aligned and not self.copied

    def laid(self, x: ir.Tensor, name: str = "flat") -> ir.Tensor:
        """Padded images, split by residue and flattened, in the accumulation type."""
        if not self.copied:
            return x
        cut = len(x.shape) - len(self.sides)
        n, channels = x.shape[:1], x.shape[1:cut]
        reach = self._flat([side.most // side.step for side in self.sides])
        line = self.extents[-1]
        row = self.length + reach + _SLACK
        if len(self.sides) > 1:
            row = -(-row // line) * line

        def element(at: Indices) -> ir.Expr:
            outer, residues, q = at[:cut], at[cut:-1], at[-1]
            places, inside = [], ir.as_expr(True)
            for d, side in enumerate(self.sides):
                line = q // self.pitch[d] if self.pitch[d] > 1 else q
                line = line % self.extents[d] if d else line
                place = line * side.step + residues[d] - side.before
                taken, there = source(place, side.given)
                places.append(taken)
                inside = inside & there
            value = ir.wide(x[(*outer, *places)])
            return ir.select(inside, value, ir.as_expr(0.0).cast(value.dtype))

        names = ["b", *("g", "c")[2 - len(channels) :]]
        names += [f"r{name}" for name in SPATIAL[3 - len(self.sides) :]] + ["q"]
        residues = [side.residues for side in self.sides]
        return staged((*n, *channels, *residues, row), names, element, name)

    def at(
        self, batch: Any, channels: Indices, place: Indices, offsets: Sequence[Any]
    ) -> Indices:
        """The index of a pixel, at `offsets` from what the sum at `place` reads."""
        steps = [side.step for side in self.sides]
        pairs = list(zip(offsets, steps, strict=True))
        residues = [n % step if step > 1 else 0 for n, step in pairs]
        lines = [n // step if step > 1 else n for n, step in pairs]
        split, offset = residues if self.copied else (), self._flat(lines)
        first = isinstance(offset, int) and offset == 0
        return (batch, *channels, *split, place[0] if first else place[0] + offset)

    def place(self, lines: Indices) -> Indices:
        """The place of the sum for a result of a phase."""
        return (self._flat(lines),)

    def _flat(self, lines: Sequence[Any]) -> Any:
        steps = [n * pitch for n, pitch in zip(lines, self.pitch, strict=True)]
        return sum(steps[1:], steps[0])
