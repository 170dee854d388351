"""Sliding windows: the windows of a reduction, their strides, and their images.

    sums[b, c, i, j] += padded[b, c, i * 2 + ky, j * 2 + kx] * w[c, ky, kx]

Here `i` and `j` are loops over windows of stride 2, and `ky` and `kx` those within a
window, whatever the layout and the number of dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Load, Var
from tensorlang.schedules.stages import Stage, extent_of


@frozen
class Slide:
    """Windows along one dimension."""

    loop: str  # loop over windows
    dim: int  # dimension of the image
    step: int  # pixels from window to window
    taps: tuple[str, ...]  # loops within a window
    reach: int  # pixels from a window's first to its last

    def pixels(self, windows: int) -> int:
        """Pixels covered by this many neighbouring windows."""
        return (windows - 1) * self.step + self.reach + 1


@frozen
class Sliding:
    """A stage that reads an image by windows."""

    stage: Stage
    image: Load  # load of the image
    # one per dimension that windows slide along, in memory order
    slides: tuple[Slide, ...]
    same: tuple[str, ...]  # loops over results computed from the same pixels

    @property
    def spatial(self) -> tuple[str, ...]:
        """The loops over results."""
        return self.stage.names("spatial")

    @property
    def sizes(self) -> dict[str, int | None]:
        """The extent of each loop, if known."""
        return {loop.var.name: extent_of(loop) for loop in self.stage.loops}

    def count(self, loops: Sequence[str]) -> int:
        """The trip count of a nest of loops; loops of unknown extent count as one."""
        sizes = self.sizes
        return prod(sizes[name] or 1 for name in loops)


@frozen
class Windows(Sliding):
    """A stage that reduces windows.

    Attributes:
        deep: Reduction loops that do not slide, such as channels of a group.
    """

    deep: tuple[str, ...]

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return self.count([name for slide in self.slides for name in slide.taps])

    @property
    def lines(self) -> bool:
        """Whether neighbouring windows are contiguous: channels-first layout."""
        return self.slides[-1].loop == self.spatial[-1]

    @property
    def deep_in_memory(self) -> tuple[str, ...]:
        """The reduction loops that do not slide, if contiguous: channels last."""
        last = self.image.indices[-1]
        axes = {self.stage.axis(x): x.var.name for x in self.stage.driven("reduction")}
        return tuple(name for name in self.deep if axes.get(last) == name)  # type: ignore[call-overload]

    def line_by_line(self) -> Windows:
        """The same windows, with their lines treated like channels."""
        *others, column = self.slides
        lines = tuple(name for slide in others for name in slide.taps)
        return replace(self, slides=(column,), deep=(*self.deep, *lines))


def windows_of(stage: Stage) -> Windows:
    """Analyse what slides in a stage.

    Raises:
        ScheduleError: nothing does, several operands do, or a window's size varies.
    """
    if any(extent_of(loop) is None for loop in stage.driven("reduction")):
        raise ScheduleError(f"{stage.name} reduces over a dynamic length")
    folded = stage.names("reduction")
    found = {load: slides_of(stage, load, folded) for load in stage.loads}
    images = [load for load, slides in found.items() if slides]
    if len(images) != 1:
        raise ScheduleError(f"{stage.name} slides over {len(images)} images, not one")
    (image,) = images
    near = {name for slide in found[image] for name in slide.taps}
    used = _loops_of(stage, image)
    same = tuple(name for name in stage.names("spatial") if name not in used)
    deep = tuple(name for name in folded if name not in near)
    return Windows(stage, image, found[image], same, deep)


def _loops_of(stage: Stage, load: Load) -> set[str]:
    """The loops that index a load."""
    used = frozenset().union(*map(free_vars, load.indices))
    return {loop.var.name for loop in stage.loops if stage.axis(loop) in used}


def slides_of(stage: Stage, load: Load, within: Sequence[str]) -> tuple[Slide, ...]:
    """The sliding windows of a load: one loop over windows, and some within them.

    Args:
        within: The loops that may be within a window.
    """
    axes = {stage.axis(loop): loop for loop in stage.loops}
    found = []
    for dim, index in enumerate(load.indices):
        form = linear(index)
        steps = {
            axes[atom].var.name: step
            for atom, step in form.terms
            if isinstance(atom, Var) and atom in axes
        }
        taps = tuple(name for name in steps if name in within)
        over = [name for name in steps if name not in within]
        plain = len(form.terms) == len(steps) and min(steps.values(), default=0) > 0
        if taps and len(over) == 1 and plain:
            sizes = {x.var.name: extent_of(x) or 1 for x in axes.values()}
            reach = sum((sizes[name] - 1) * steps[name] for name in taps)
            found.append(Slide(over[0], dim, steps[over[0]], taps, reach))
    return tuple(found)


@frozen
class WeightSums(Sliding):
    """A stage that accumulates gradients of window weights over all positions.

    dw[o, c, ky, kx] += dy[b, o, i, j] * padded[b, c, i * 2 + ky, j * 2 + kx]
    """

    given: Load  # other load, `dy`
    outer: tuple[str, ...]  # reduction loops that do not slide: images
    taps: tuple[str, ...]  # loops over a window
    deep: tuple[str, ...]  # loops over results computed from the same elements of `dy`

    @property
    def thread_loops(self) -> tuple[str, ...]:
        """Loops over the results of one thread."""
        return (*self.same, *self.taps)

    @property
    def grid_loops(self) -> tuple[str, ...]:
        """Loops over the results of different threads, in memory order."""
        return tuple(name for name in self.spatial if name not in self.thread_loops)

    @property
    def lines(self) -> bool:
        """Whether neighbours of a line are contiguous: channels-first layout."""
        return self.slides[-1].dim == len(self.image.indices) - 1


def weight_sums_of(stage: Stage) -> WeightSums:
    """Analyse a stage as a gradient of window weights.

    Raises:
        ScheduleError: it is no sum of products of positions with pixels around them.
    """
    folded, spatial = stage.driven("reduction"), stage.names("spatial")
    found = {load: slides_of(stage, load, spatial) for load in stage.loads}
    images = [load for load, slides in found.items() if slides]
    others = [load for load, slides in found.items() if not slides]
    if len(images) != 1 or len(others) != 1 or len(stage.outputs) != 1:
        raise ScheduleError(f"{stage.name} is not a gradient of window weights")
    (image,), (given,) = images, others
    if len(image.indices) != len(given.indices):
        raise ScheduleError(f"{stage.name} does not multiply images of one rank")
    slides = found[image]
    places = {slide.loop for slide in slides}
    known = {loop.var.name for loop in folded if extent_of(loop) is not None}
    if not places <= known:
        raise ScheduleError(f"the number of positions of {stage.name} is dynamic")
    taps = tuple(name for slide in slides for name in slide.taps)
    in_image, in_given = (_loops_of(stage, load) for load in (image, given))
    channels = [name for name in spatial if name not in taps]
    return WeightSums(
        stage,
        image,
        slides,
        tuple(name for name in channels if name not in in_image),
        given,
        tuple(name for name in stage.names("reduction") if name not in places),
        taps,
        tuple(name for name in channels if name not in in_given),
    )
