"""The launches of a network's program: where their arrays are, for any batch.

The program is bound for the largest batch and for one more. What differs between both
is linear in the batch, or the program has no export for several batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang import ir
from tensorlang.errors import GraphError
from tensorlang.export.c_expressions import c_text, plain
from tensorlang.export.kernels import Kernel, Kernels
from tensorlang.export.library import ALIGNED, Array, Launch, Program
from tensorlang.export.steps import Bound, Parts, Step, parts, serves
from tensorlang.frozen import frozen
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.runtime import build
from tensorlang.runtime.calling import bind, bits, scalar
from tensorlang.runtime.signature import Scalars, evaluate

if TYPE_CHECKING:
    from tensorlang.export.machines import Machine

BATCH: Final = "batch"


def linear(by: int, start: int) -> ir.Expr:
    """An expression that is linear in the batch."""
    return simplify(ir.Var(BATCH, ir.i64) * by + start)


class Constants:
    """The constant data of a library: equal data once.

    Args:
        name: Of the data, in C.
    """

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.data: Final = bytearray()
        self._places: dict[bytes, int] = {}

    def place(self, array: np.ndarray) -> str:
        """The address of data, in C."""
        content = np.ascontiguousarray(array).tobytes()
        if content not in self._places:
            self.data.extend(bytes(-len(self.data) % ALIGNED))
            self._places[content] = len(self.data)
            self.data.extend(content)
        return f"address({self.name}) + {self._places[content]}"


@frozen
class _Call:
    """A step with its kernel, for both batches."""

    steps: tuple[Step, Step]  # step for the largest batch, and for one more
    parts: Parts  # its functions
    kernel: Kernel  # kernel of the rest
    # its arrays, those that are kept too; for both batches
    arrays: tuple[list[np.ndarray], list[np.ndarray]]


class Placement:
    """The memory of a program.

    Args:
        given: What the caller passes.
        pair: The program bound for the largest batch, and for one more.
        most: The largest batch; 0 if there is none.
        machine: Where it runs.
        kernels: The library's kernels.
        constants: The library's data.
    """

    def __init__(  # noqa: PLR0917 - what a program consists of
        self,
        given: Sequence[Array],
        pair: tuple[Bound, Bound],
        most: int,
        machine: Machine,
        kernels: Kernels,
        constants: Constants,
    ) -> None:
        self.given, self.pair, self.most = given, pair, most
        self.machine, self.kernels, self.constants = machine, kernels, constants
        self.size = -(-pair[0].block.nbytes // ALIGNED) * ALIGNED
        steps = zip(pair[0].steps, pair[1].steps, strict=True)
        self.calls = [self._call(*both) for both in steps]
        self._loose = list(self._written_outside())

    def _written_outside(self) -> Iterator[tuple[np.ndarray, int]]:
        """What steps write outside of the block, as the words of keys; its place."""
        block, starts = self.pair[0].block, set[int]()
        for call in self.calls:
            buffers = call.kernel.signature.buffers
            for array, spec in zip(call.arrays[0], buffers, strict=True):
                at = _start(array)
                if spec.written and not (at in starts or _within(array, block)):
                    starts.add(at)
                    yield array, self.size
                    self.size += -(-array.nbytes // ALIGNED) * ALIGNED

    def program(self) -> Program:
        """The launches, for the batches that their kernels serve."""
        launches = tuple(map(self._launch, self.calls))
        outputs = [array for array in self.given if array.written]
        held = zip(outputs, self.pair[0].outputs, self.pair[1].outputs, strict=False)
        copies = tuple(
            (array.name, f"(const void *)({self._address(a, b)})", array.bytes)
            for array, a, b in held
        )
        guards: tuple[str, ...] = ()
        if self.most:
            guards = (f"{BATCH} >= {self.least}", f"{BATCH} <= {self.most}")
            guards = guards if self.least < self.most else (f"{BATCH} == {self.most}",)
        return Program(self.machine, guards, launches, self.size, copies)

    # ------------------------------------------------------------------- launches

    def _call(self, step: Step, beside: Step) -> _Call:
        if step.op is not beside.op:
            raise GraphError("the program is another one for other batches")
        found = parts(step, self.machine.target)
        kernel = self.kernels.kernel(found.rest, self.machine)
        extra = self._kept(step, found, kernel)
        arrays = [*step.arrays, *extra], [*beside.arrays, *extra]
        return _Call((step, beside), found, kernel, arrays)

    def _kept(self, step: Step, found: Parts, kernel: Kernel) -> list[np.ndarray]:
        """What the constant part of a step computes."""
        if found.constant is None:
            return []
        buffers = kernel.signature.buffers[len(step.arrays) :]
        made = [
            np.zeros(tuple(evaluate(n, {}) for n in b.shape), b.numpy) for b in buffers
        ]
        constants = [step.arrays[at] for at in step.called.constants]
        fill = build(found.constant, by_meaning=not self.machine.is_host)
        fill(*constants, *made)
        for array in made:
            array.flags.writeable = False
        return made

    def _launch(self, call: _Call) -> Launch:
        kernel, (arrays, others) = call.kernel, call.arrays
        slots = [
            self._address(a, b) if used else "0"
            for a, b, used in zip(arrays, others, kernel.used, strict=True)
        ]
        values = [
            _scalars(kernel, *each)
            for each in zip(call.steps, call.arrays, strict=True)
        ]
        for spec in kernel.signature.scalars:
            a, b = (bits(spec, found[spec.name]) for found in values)
            slots.append(f"(uint64_t){c_text(self._between(a, b))}")
        size = self._between(*(sum(a.nbytes for a in each) for each in call.arrays))
        title = call.steps[0].op.described(call.steps[0].workload)
        return Launch(kernel, title, tuple(slots), plain(size))

    def _between(self, a: int, b: int) -> ir.Expr:
        """A number for any batch, from those for both."""
        return linear(b - a, a - (b - a) * self.most)

    # ------------------------------------------------------------------ addresses

    def _address(self, a: np.ndarray, b: np.ndarray) -> str:
        """Where an array is, in C; for one more it is `b`."""
        if not a.size:
            return "0"
        return self._argument(a, b) or self._computed(a, b) or self.constants.place(a)

    def _argument(self, a: np.ndarray, b: np.ndarray) -> str:
        """Where it is in what the caller passes; empty if it is not."""
        inputs = (bound.inputs for bound in self.pair)
        for array, own, other in zip(self.given, *inputs, strict=False):
            if not array.written and _within(a, own):
                if _start(a) - _start(own) != _start(b) - _start(other):
                    raise self._refused()
                return f"address({array.name}) + {_start(a) - _start(own)}"
        return ""

    def _computed(self, a: np.ndarray, b: np.ndarray) -> str:
        """Where it is in the workspace; empty if it is constant."""
        large, more = self.pair
        for array, place in self._loose:
            if _within(a, array):
                return f"address(base) + {place + _start(a) - _start(array)}"
        constant = any(_within(a, array) for array in large.fixed)
        if constant or not _within(a, large.block):
            return ""
        pairs = zip(large.values, more.values, strict=True)
        if all((_start(c), _start(d)) != (_start(a), _start(b)) for c, d in pairs):
            raise self._refused()
        return f"address(base) + {_start(a) - _start(large.block)}"

    @staticmethod
    def _refused() -> GraphError:
        return GraphError(
            "the program reads parts of an array, whose place depends on the batch: "
            "export it for inputs of a fixed size"
        )

    def serves(self, batch: int) -> bool:
        """Whether all kernels serve another batch."""
        return all(_serves(call, batch, self.most) for call in self._distinct.values())

    @cached_property
    def _distinct(self) -> dict[object, _Call]:
        return {(c.steps[0].workload, c.parts.algorithm): c for c in self.calls}

    @cached_property
    def least(self) -> int:
        """The smallest batch from which on all kernels serve all batches."""
        least, (at, more) = self.most, self.pair
        while at is not more and least > 1 and self.serves(least - 1):
            least -= 1
        return least


def _scalars(kernel: Kernel, step: Step, arrays: Sequence[np.ndarray]) -> Scalars:
    """The scalars of a call: its numbers, and sizes from shapes."""
    numbers = [each for each in step.arguments if not isinstance(each, np.ndarray)]
    found: Scalars = {
        spec.name: scalar(step.op.id, spec, number)
        for spec, number in zip(kernel.signature.free, numbers, strict=True)
    }
    bind(kernel.signature, [array.shape for array in arrays], found)
    return found


def _serves(call: _Call, batch: int, most: int) -> bool:
    """Whether a call's kernel serves another batch."""
    pairs = zip(*(step.workload.shapes for step in call.steps), strict=True)
    shapes = [
        tuple(a + (b - a) * (batch - most) for a, b in zip(*pair, strict=True))
        for pair in pairs
    ]
    return serves(call.steps[0], call.parts.algorithm, shapes)


def _start(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def _within(array: np.ndarray, whole: np.ndarray) -> bool:
    return 0 <= _start(array) - _start(whole) < max(whole.nbytes, 1)
