"""Sliding windows: the windows of a reduction, their strides, and their images.

    sums[b, c, i, j] += padded[b, c, i * 2 + ky, j * 2 + kx] * w[c, ky, kx]

Here `i` and `j` are loops over windows of stride 2, and `ky` and `kx` those within a
window, whatever the layout and the number of dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Load, Var
from tensorlang.schedules.stages import Stage, extent_of


@dataclass(frozen=True, slots=True)
class Slide:
    """Windows along one dimension.

    Attributes:
        loop: The loop over windows.
        dim: The dimension of the image.
        step: Pixels from window to window.
        taps: The loops within a window.
        reach: Pixels from a window's first to its last.
    """

    loop: str
    dim: int
    step: int
    taps: tuple[str, ...]
    reach: int

    def pixels(self, windows: int) -> int:
        """Pixels covered by this many neighbouring windows."""
        return (windows - 1) * self.step + self.reach + 1


@dataclass(frozen=True, slots=True)
class Windows:
    """A stage that reduces windows.

    Attributes:
        stage: The stage.
        image: The load of the image.
        slides: One per dimension that windows slide along, in memory order.
        same: Loops over results computed from the same pixels.
        deep: Reduction loops that do not slide, such as channels of a group.
        sizes: The extent of each loop, if known.
    """

    stage: Stage
    image: Load
    slides: tuple[Slide, ...]
    same: tuple[str, ...]
    deep: tuple[str, ...]
    sizes: Mapping[str, int | None]

    @property
    def spatial(self) -> tuple[str, ...]:
        """The loops over results."""
        return tuple(loop.var.name for loop in self.stage.driven("spatial"))

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

    def count(self, loops: Sequence[str]) -> int:
        """The trip count of a nest of loops; loops of unknown extent count as one."""
        return prod(self.sizes[name] or 1 for name in loops)

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
    sizes = {loop.var.name: extent_of(loop) for loop in stage.loops}
    folded = tuple(loop.var.name for loop in stage.driven("reduction"))
    if any(sizes[name] is None for name in folded):
        raise ScheduleError(f"{stage.name} reduces over a dynamic length")
    axes = {stage.axis(loop): loop.var.name for loop in stage.loops}
    found = {load: slides_of(load, axes, folded, sizes) for load in stage.loads}
    images = [load for load, slides in found.items() if slides]
    if len(images) != 1:
        raise ScheduleError(f"{stage.name} slides over {len(images)} images, not one")
    (image,) = images
    used = {axes[v] for i in image.indices for v in free_vars(i) if v in axes}
    near = {name for slide in found[image] for name in slide.taps}
    spatial = (loop.var.name for loop in stage.driven("spatial"))
    same = tuple(name for name in spatial if name not in used)
    deep = tuple(name for name in folded if name not in near)
    return Windows(stage, image, found[image], same, deep, sizes)


def slides_of(
    load: Load,
    axes: Mapping[Var, str],
    within: Sequence[str],
    sizes: Mapping[str, int | None],
) -> tuple[Slide, ...]:
    """The sliding windows of a load: one loop over windows, and some within them.

    Args:
        load: The load.
        axes: The loop of each axis.
        within: The loops that may be within a window.
        sizes: The extent of each loop.
    """
    found = []
    for dim, index in enumerate(load.indices):
        form = linear(index)
        steps = {
            axes[atom]: step
            for atom, step in form.terms
            if isinstance(atom, Var) and atom in axes
        }
        taps = tuple(name for name in steps if name in within)
        over = [name for name in steps if name not in within]
        plain = len(form.terms) == len(steps) and min(steps.values(), default=0) > 0
        if taps and len(over) == 1 and plain:
            reach = sum(((sizes[name] or 1) - 1) * steps[name] for name in taps)
            found.append(Slide(over[0], dim, steps[over[0]], taps, reach))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class WeightSums:
    """A stage that accumulates gradients of window weights over all positions.

        dw[o, c, ky, kx] += dy[b, o, i, j] * padded[b, c, i * 2 + ky, j * 2 + kx]

    Attributes:
        stage: The stage.
        image: The load of the image.
        given: The other load, `dy`.
        slides: Per dimension, the loop over positions and the loops within a window.
        outer: Reduction loops that do not slide: images.
        taps: Loops over a window.
        same: Loops over results computed from the same pixels.
        deep: Loops over results computed from the same elements of `dy`.
        sizes: The extent of each loop, if known.
    """

    stage: Stage
    image: Load
    given: Load
    slides: tuple[Slide, ...]
    outer: tuple[str, ...]
    taps: tuple[str, ...]
    same: tuple[str, ...]
    deep: tuple[str, ...]
    sizes: Mapping[str, int | None]

    @property
    def thread_loops(self) -> tuple[str, ...]:
        """Loops over the results of one thread."""
        return (*self.same, *self.taps)

    @property
    def grid_loops(self) -> tuple[str, ...]:
        """Loops over the results of different threads, in memory order."""
        spatial = (loop.var.name for loop in self.stage.driven("spatial"))
        return tuple(name for name in spatial if name not in self.thread_loops)

    @property
    def lines(self) -> bool:
        """Whether neighbours of a line are contiguous: channels-first layout."""
        return self.slides[-1].dim == len(self.image.indices) - 1

    def count(self, loops: Sequence[str]) -> int:
        """The trip count of a nest of loops; loops of unknown extent count as one."""
        return prod(self.sizes[name] or 1 for name in loops)


def weight_sums_of(stage: Stage) -> WeightSums:
    """Analyse a stage as a gradient of window weights.

    Raises:
        ScheduleError: it is no sum of products of positions with pixels around them.
    """
    sizes = {loop.var.name: extent_of(loop) for loop in stage.loops}
    axes = {stage.axis(loop): loop.var.name for loop in stage.loops}
    folded = tuple(loop.var.name for loop in stage.driven("reduction"))
    spatial = tuple(loop.var.name for loop in stage.driven("spatial"))
    found = {load: slides_of(load, axes, spatial, sizes) for load in stage.loads}
    images = [load for load, slides in found.items() if slides]
    others = [load for load, slides in found.items() if not slides]
    if len(images) != 1 or len(others) != 1 or len(stage.outputs) != 1:
        raise ScheduleError(f"{stage.name} is not a gradient of window weights")
    (image,), (given,) = images, others
    if len(image.indices) != len(given.indices):
        raise ScheduleError(f"{stage.name} does not multiply images of one rank")
    slides = found[image]
    places = [slide.loop for slide in slides]
    if not set(places) <= set(folded) or any(sizes[name] is None for name in places):
        raise ScheduleError(f"the number of positions of {stage.name} is dynamic")
    taps = tuple(name for slide in slides for name in slide.taps)
    in_image, in_given = (
        {axes[v] for i in load.indices for v in free_vars(i) if v in axes}
        for load in (image, given)
    )
    channels = [name for name in spatial if name not in taps]
    return WeightSums(
        stage,
        image,
        given,
        slides,
        tuple(name for name in folded if name not in places),
        taps,
        tuple(name for name in channels if name not in in_image),
        tuple(name for name in channels if name not in in_given),
        sizes,
    )
