"""What a random step can name in a function, and how one option is drawn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw

from tensorlang.ir.contents import allocations, blocks, free_vars, loops
from tensorlang.ir.nodes import (
    Block,
    Buffer,
    Const,
    For,
    Function,
    Node,
)
from tensorlang.ir.visit import nodes_of
from tensorlang.scheduling.analysis.tree import (
    blocks_under,
    enclosing_loops,
    find_block,
    paths_to,
)


def _uses(node: Node) -> Counter[Buffer]:
    return Counter(nodes_of(node, Buffer))


@dataclass(frozen=True)
class Place:
    """A loop, how to call it, and the loops around it."""

    name: str
    loop: For
    around: tuple[For, ...]

    @property
    def extent(self) -> int | None:
        size = self.loop.extent
        return int(size.value) if isinstance(size, Const) else None

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of the axes that it drives."""
        return frozenset(
            axis.kind
            for block in blocks(self.loop)
            for axis in block.axes
            if self.loop.var in free_vars(axis.value)
        )

    @cached_property
    def uses(self) -> Counter[Buffer]:
        """How often each buffer is named inside."""
        return _uses(self.loop.body)

    @property
    def nest(self) -> tuple[For, ...]:
        return (*self.around, *loops(self.loop.body))


@dataclass(frozen=True)
class View:
    """What can be named in a function."""

    func: Function

    @cached_property
    def loops(self) -> list[Place]:
        paths = list(paths_to(self.func, For))
        count = Counter(path[-1].var.name for path in paths)  # type: ignore[attr-defined]
        made = []
        for path in paths:
            loop = path[-1]
            assert isinstance(loop, For)
            first = next(blocks_under(loop), None)
            name = loop.var.name
            if count[name] > 1:
                if first is None:
                    continue
                name = f"{first.name}/{name}"
            made.append(Place(name, loop, enclosing_loops(path)))
        return made

    @cached_property
    def blocks(self) -> list[Block]:
        return list(blocks(self.func))

    @cached_property
    def temporaries(self) -> list[Buffer]:
        return list(allocations(self.func))

    @cached_property
    def uses(self) -> Counter[Buffer]:
        """How often each buffer is named."""
        return _uses(self.func)

    def around(self, block: Block) -> list[str]:
        """The loops around a block."""
        return [
            loop.var.name for loop in enclosing_loops(find_block(self.func, block.name))
        ]


Arguments: TypeAlias = tuple[Any, ...]  # of a step, in order


def pick(draw: Draw, options: Any) -> Any:
    """One of the options; shrinks to the first."""
    return draw(st.sampled_from(list(options)))


def usually(draw: Draw, sensible: list[Any], everything: list[Any]) -> Any:
    """One of the sensible options, or now and then any."""
    if not everything:
        return None
    if sensible and draw(st.integers(0, 9)) < 9:
        return pick(draw, sensible)
    return pick(draw, everything) if draw(st.integers(0, 3)) == 3 else None
