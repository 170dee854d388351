"""One launch for many sets of arrays: a kernel of flat arrays, told which set is whose.

A network's optimizer updates hundreds of arrays, most of them tiny: a launch for each
would take longer than all they do. The blocks of all sets are one grid; a table among
the kernel's arguments says where each set begins, and a block looks its own up. It does
what it does in a launch for that set alone, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.codegen.simt.host import Launch, data_of, launches
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Buffer, Expr, Function, Var, as_expr

_BYTES: Final = 4096  # of a kernel's arguments, on any GPU and with any driver
_HEAD: Final = 64  # of these, for the number of sets and what is between
_TAKEN: Final = {"sets", "set", "block", "middle", "end", "count", "first"}  # names


@dataclass(frozen=True, slots=True)
class Many:
    """A launch that serves many sets.

    Attributes:
        launch: For one set.
        length: The number of elements of a set.
        block: The number of a block.
    """

    launch: Launch
    length: Var
    block: Var

    @property
    def name(self) -> str:
        """Of the kernel for many sets."""
        return f"{self.launch.name}_many"

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The arrays of a set."""
        return self.launch.buffers

    @property
    def scalars(self) -> tuple[Var, ...]:
        """The numbers that are the same for all sets."""
        return tuple(var for var in self.launch.scalars if var != self.length)

    @property
    def most(self) -> int:
        """How many sets the arguments have room for."""
        of_a_set = 4 + 8 + 8 * len(self.buffers)
        return (_BYTES - _HEAD - 8 * len(self.scalars)) // of_a_set

    def data(self) -> dict[str, object]:
        """What the runtime needs to know."""
        given = self.launch.function.buffers
        return {
            "name": self.name,
            "most": self.most,
            "length": self.length.name,
            "blocks": data_of(self.launch.grid[0]),
            "block": list(self.launch.block),
            "buffers": [given.index(buffer) for buffer in self.buffers],
            "scalars": [var.name for var in self.scalars],
        }


def many(function: Function) -> Many | None:
    """The launch of a lowered function as one for many sets, where it can be.

    It is one launch that updates flat arrays of one length, and needs nothing else.
    """
    length = _length(function)
    found = launches(function)
    if length is None or len(found) != 1:
        return None
    (launch,) = found
    needs = launch.scratch or launch.checks or launch.tensor_maps or launch.shared
    if needs or len(launch.blocks) != 1 or launch.blocks[0].thread != "block.x":
        return None
    block = launch.blocks[0].var
    names = {b.name for b in launch.buffers} | {var.name for var in launch.scalars}
    alone = {*launch.buffers} <= {*function.buffers} and not names & _TAKEN
    if not alone or free_vars(launch.grid[0]) != {length}:
        return None
    return Many(launch, length, block) if length in launch.scalars else None


def _length(function: Function) -> Var | None:
    """The one length of all arrays, of which some are updated in place."""
    shapes = {param.buffer.shape for param in function.params}
    if len(shapes) != 1 or not any(p.role == "inout" for p in function.params):
        return None
    (shape,) = shapes
    length: Expr = shape[0] if len(shape) == 1 else as_expr(0)
    return length if isinstance(length, Var) else None
