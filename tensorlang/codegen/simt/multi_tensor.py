"""Multi-tensor launches: one launch of an elementwise kernel for many sets of arrays.

A network's optimizer updates hundreds of arrays, most of them tiny, so that launches
would dominate. Here the blocks of all sets form one grid; a table passed as an argument
says at which block each set begins, and each block looks up its own set. The results
are bitwise those of separate launches.
"""

from __future__ import annotations

from typing import Final

from tensorlang.codegen.simt.host import Launch, data_of, launches
from tensorlang.frozen import frozen
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Buffer, Expr, Function, Var, as_expr

_BYTES: Final = 4096  # of kernel arguments, on any GPU and driver
_HEAD: Final = 64  # of these, for the number of sets and padding
_TAKEN: Final = {"sets", "set", "block", "middle", "end", "count", "first"}  # names


@frozen
class MultiTensorLaunch:
    """A launch that serves many sets."""

    launch: Launch  # launch for one set
    length: Var  # number of elements of a set
    block: Var  # index of a block

    @property
    def name(self) -> str:
        """Name of the kernel for many sets."""
        return f"{self.launch.name}_many"

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The arrays of a set."""
        return self.launch.buffers

    @property
    def scalars(self) -> tuple[Var, ...]:
        """The scalars common to all sets."""
        return tuple(var for var in self.launch.scalars if var != self.length)

    @property
    def most(self) -> int:
        """Number of sets for which the arguments have room."""
        of_a_set = 4 + 8 + 8 * len(self.buffers)
        return (_BYTES - _HEAD - 8 * len(self.scalars)) // of_a_set

    def data(self) -> dict[str, object]:
        """Description for the runtime."""
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


def multi_tensor_launch(function: Function) -> MultiTensorLaunch | None:
    """The multi-tensor form of a lowered function, if it has one.

    It must be a single launch that updates flat arrays of one length in place, without
    temporaries, checks or shared memory.
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
    return (
        MultiTensorLaunch(launch, length, block) if length in launch.scalars else None
    )


def _length(function: Function) -> Var | None:
    """The common length of all arrays, if some are updated in place."""
    shapes = {param.buffer.shape for param in function.params}
    if len(shapes) != 1 or not any(p.role == "inout" for p in function.params):
        return None
    (shape,) = shapes
    length: Expr = shape[0] if len(shape) == 1 else as_expr(0)
    return length if isinstance(length, Var) else None
