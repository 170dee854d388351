"""The state of a run: checks, fuel, memories, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter.races import Races
from tensorlang.ir.interpreter.undo import Undo

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.clocks import Clocks
    from tensorlang.ir.interpreter.copies import Copies
    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.interpreter.memory import Memory
    from tensorlang.ir.interpreter.objects import Objects
    from tensorlang.ir.nodes import Block, Buffer, IndexMap, Node

Laid: TypeAlias = "tuple[IndexMap, tuple[int, ...]]"
N = TypeVar("N", bound="Node")
T = TypeVar("T")

# check -> the fault that it finds
CHECKS: Final[Mapping[str, str]] = {
    "bounds": "an index or axis value outside its extent",
    "unwritten": "a read of memory that nothing wrote",
    "race": "an element written by one lane and accessed by another",
    "barrier": "a barrier that only some lanes of its scope reach",
    "disjoint": "two iterations of a disjoint axis on one element",
    "order": "an ordered axis that does not increase",
    "bank": "counts (and does not raise) bank conflicts of shared memory",
    "in_param": "a write to an `in` parameter",
    "phase": "a wait for a phase that is ambiguous by its parity",
    "register": "a register of another thread",
    "inout": "a read of an `inout` element after it was written, except to update it",
}
ALL_CHECKS: Final = frozenset(CHECKS)
FUEL: Final = 5_000_000


@dataclass(slots=True)
class RunReport:
    """Statistics of a run."""

    steps: int = 0  # statements executed; one statement over many lanes is one step
    barriers: int = 0  # barriers passed
    # for each `shared` buffer, the extra passes of its accesses: a warp's access to d
    # distinct words of one bank takes d passes
    bank_conflicts: Counter[str] = field(default_factory=Counter)
    batched: int = 0  # serial loops whose iterations were executed side by side


@dataclass(slots=True)
class BlockRun:
    """The block being executed, as its statements see it.

    Attributes:
        implicit: Whether a `Reduce` starts from the identity at `first` instances.
        started: For reductions under loops of the body: initialized elements by memory.
        owned: Buffers whose elements belong to one iteration (`disjoint` axes).
    """

    block: Block
    implicit: bool = False
    started: dict[int, Array] | None = None
    owned: frozenset[str] = frozenset()
    span: int = 1


@dataclass(slots=True)
class Machine:
    """The mutable state of one run."""

    checks: frozenset[str]
    fuel: int
    mutable: frozenset[str]  # buffers that some statement writes
    memories: dict[str, Memory] = field(default_factory=dict)
    report: RunReport = field(default_factory=RunReport)
    races: Races = field(default_factory=Races)
    undo: Undo = field(default_factory=Undo)
    run: BlockRun | None = None
    last: dict[str, Array] = field(default_factory=dict)  # by block: `order`
    instances: int = 0
    # loads of the elements the current store updates
    updated: frozenset[int] = frozenset()
    serial_only: set[int] = field(default_factory=set)  # loops known not to batch
    words: dict[Laid, list[Array]] = field(default_factory=dict)
    objects: dict[str, Objects] = field(default_factory=dict)
    clocks: Clocks | None = None  # of the threads that meet at barrier objects
    copies: Copies | None = None  # pending stores hinted `async`
    passed: int = 0  # waits passed, and roles finished
    alone: bool = False  # running a copy or a collective, not a thread's own code
    span: int = 1  # threads that a lane represents in a collective
    _derived: dict[tuple[int, object], tuple[Node, Any]] = field(default_factory=dict)

    def memory(self, buffer: Buffer) -> Memory:
        """The memory of a buffer in scope; InterpreterError if nothing allocates it."""
        found = self.memories.get(buffer.name)
        if found is None:
            raise InterpreterError(f"buffer {buffer.name} is not allocated here")
        return found

    def derived(self, node: N, make: Callable[[N], T]) -> T:
        """`make(node)`, memoised per node object."""
        key = id(node), make
        found = self._derived.get(key)
        if found is None:  # the node is kept alive, so that its id stays unique
            found = self._derived[key] = node, make(node)
        return found[1]

    def step(self) -> None:
        """Count one statement; InterpreterError if the fuel is exhausted."""
        self.report.steps += 1
        if self.report.steps > self.fuel:
            raise InterpreterError(
                f"the run took more than {self.fuel} steps; it may not end. "
                "Give more with fuel=..."
            )


def fault(lanes: Lanes, lane: int, message: str) -> InterpreterError:
    """The error for a fault in one lane, with its loop values."""
    where = lanes.describe(lane)
    return InterpreterError(f"{message} (at {where})" if where else message)
