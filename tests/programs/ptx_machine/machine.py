"""A launch: batches of blocks, and whose turn it is."""

from __future__ import annotations

import numpy as np

from .batch import AT_BARRIER, GONE, IN_WARP, READY, Batch, Lanes, Three
from .decode import Decoded, decoded, layout_of, smallest_access
from .faults import Fault
from .memory import GlobalMemory
from .operands import Names
from .program import Kernel
from .registers import pools_of
from .types import named

_THREADS = 8192  # of a batch, about
_STEPS = 10_000_000


def launch(
    kernel: Kernel,
    memory: GlobalMemory,
    grid: Three,
    block: Three,
    params: list[bytes],
    *,
    shared: int = 0,
) -> int:
    """Run a kernel to its end, and tell how many instructions were issued.

    Args:
        kernel: One of `load`.
        memory: What it may touch.
        grid: Blocks in x, y, z.
        block: Threads in x, y, z.
        params: The bytes of each parameter.
        shared: Bytes of dynamic shared memory.

    Raises:
        Fault: the kernel does what the ISA leaves undefined.
    """
    names = Names(kernel, {name: n for n, name in enumerate(kernel.registers)})
    raw = _laid_out(kernel, params, names)
    memory.forget_writes()
    layout = layout_of(kernel, shared, smallest_access(kernel))
    blocks = np.arange(int(np.prod(grid)))
    some = max(1, _THREADS // int(np.prod(block)))
    issued, program = 0, None
    for first in range(0, len(blocks), some):
        part = blocks[first : first + some]
        batch = Batch(layout, memory, raw, (grid, block), part)
        if program is None:
            names.addresses = batch.shared.places | batch.local.places
            program = decoded(kernel, names)
        issued += Run(kernel, program, batch).run()
    return issued


def _laid_out(kernel: Kernel, params: list[bytes], names: Names) -> bytes:
    if len(params) != len(kernel.params):
        raise Fault(f"{kernel.name} has {len(kernel.params)} parameters")
    made = b""
    for param, value in zip(kernel.params, params, strict=True):
        size = named(param.kind).bytes
        align = param.align or size
        made += bytes(-len(made) % align)
        names.offsets[param.name] = len(made)
        if len(value) != size * param.count:
            raise Fault(
                f"{param.name} has {size * param.count} bytes, not {len(value)}"
            )
        made += value
    return made


class Run:
    """A batch on its way through a program."""

    def __init__(self, kernel: Kernel, program: list[Decoded], batch: Batch) -> None:
        self.kernel, self.program, self.batch = kernel, program, batch
        self.issued = 0

    def run(self) -> int:
        """Until all threads are gone."""
        with np.errstate(all="ignore"):
            turn = self.next_turn()
            while turn is not None:
                counter, ix = turn
                counter = self.follow(counter, ix)
                # all threads are still together: there is nobody to choose among
                turn = (counter, None) if counter >= 0 else self.next_turn()
        return self.issued

    def next_turn(self) -> tuple[int, Lanes] | None:
        """The ready threads at the smallest counter; None where all are gone."""
        s = self.batch
        ready = s.state == READY
        if not ready.any():
            if (s.state == GONE).all():
                pools_of(s).check()
                return None
            self.release()
            ready = s.state == READY
        counter = int(s.counter[ready].min())
        chosen = np.flatnonzero(ready & (s.counter == counter))
        return counter, None if len(chosen) == s.count else chosen

    def follow(self, counter: int, ix: Lanes) -> int:
        """Run on up to where threads may part or meet.

        Returns the counter of all threads of the batch where they are one, or -1.
        """
        s, first = self.batch, counter
        while counter < len(self.program):
            ins = self.program[counter]
            if ins.leader and ix is not None and counter != first:
                s.counter[ix] = counter
                return -1
            self.issued += 1
            try:
                if ins.kind != "plain":
                    return self.turn(ins, counter, ix)
                self.plain(ins, ix)
            except Fault as error:
                raise self.located(error, ins, ix) from error
            counter += 1
        s.state[s.lanes(ix)] = GONE
        return -1

    def plain(self, ins: Decoded, ix: Lanes) -> None:
        if ins.guard is None:
            ins.step(self.batch, ix)
            return
        some = self.taking(ins, ix)
        if len(some):
            ins.step(self.batch, None if len(some) == self.batch.count else some)

    def taking(self, ins: Decoded, ix: Lanes) -> np.ndarray:
        """The threads whose guard lets them."""
        lanes = self.batch.lanes(ix)
        return lanes if ins.guard is None else lanes[ins.guard(self.batch, ix)]

    def turn(self, ins: Decoded, counter: int, ix: Lanes) -> int:
        """An instruction after which threads may be at different places."""
        s = self.batch
        if self.issued > _STEPS:
            raise Fault("the kernel does not end")
        some = self.taking(ins, ix)
        whole = ix is None and len(some) == s.count
        if ins.kind == "branch" and (whole or not len(some)):
            counter = ins.target if whole else counter + 1
            if ix is None:
                return counter
            s.counter[ix] = counter
            return -1
        s.counter[s.lanes(ix)] = counter + 1
        if ins.kind == "branch":
            s.counter[some] = ins.target
        elif ins.kind == "exit":
            self.check_exit(some)
            s.state[some] = GONE
        elif ins.kind == "barrier":
            s.state[some], s.counter[some] = AT_BARRIER, counter
        elif len(some):
            return self.meet(ins, counter, None if whole else some)
        return -1

    def check_exit(self, lanes: np.ndarray) -> None:
        """Products of warpgroups and bulk stores must have been waited for."""
        late = {first for first, _ in self.batch.products} & set(lanes.tolist())
        if late:
            raise Fault("a thread ends before its wgmma does", min(late))
        late = {store[0] for store in self.batch.stores} & set(lanes.tolist())
        if late:
            raise Fault("a thread ends before its bulk stores have read", min(late))

    def meet(self, ins: Decoded, counter: int, ix: Lanes) -> int:
        """An instruction of warps: those that are complete do it, the others wait."""
        s = self.batch
        here = ins.arrived(s, ix)
        if here.all():
            ins.step(s, ix)
            return counter + 1 if ix is None else -1
        lanes = s.lanes(ix)
        late, here = lanes[~here], lanes[here]
        s.counter[late], s.state[late] = counter, IN_WARP
        if len(here):
            ins.step(s, here)
        return -1

    def release(self) -> None:
        """Nobody is ready: open the barriers where all have arrived."""
        s = self.batch
        waiting = s.state == AT_BARRIER
        size = s.block_size
        waits = waiting.reshape(-1, size)
        complete = waits.any(1) & (waits | (s.state == GONE).reshape(-1, size)).all(1)
        if complete.any():
            self.check_barriers(complete)
            open_ = np.repeat(complete, size) & waiting
            s.state[open_] = READY
            s.counter[open_] += 1
            s.shared.barrier(complete)
            for block in np.flatnonzero(complete):
                s.flying.barrier(int(block))
            return
        parked = s.state == IN_WARP
        if not self.together(parked):
            first = int(np.flatnonzero(parked | waiting)[0])
            ins = self.program[s.counter[first]]
            why = Fault("threads wait for others that do not come", first)
            raise self.located(why, ins, None)

    def together(self, parked: np.ndarray) -> bool:
        """Let threads that came to one instruction of a warp one by one go on."""
        s, found = self.batch, False
        for counter in np.unique(s.counter[parked]):
            lanes = np.flatnonzero(parked & (s.counter == counter))
            ins = self.program[counter]
            whole = ins.arrived(s, lanes)
            s.state[lanes[whole]] = READY
            found = found or bool(whole.any())
        return found

    def check_barriers(self, complete: np.ndarray) -> None:
        """A barrier is one instruction, for all threads of a block."""
        s = self.batch
        at = s.counter.reshape(-1, s.block_size)
        gone = (s.state == GONE).reshape(-1, s.block_size)
        for block in np.flatnonzero(complete):
            first = int(block) * s.block_size + int(np.flatnonzero(~gone[block])[0])
            what = ""
            if gone[block].any():
                what = "a barrier while threads of the block are gone"
            elif (at[block] != at[block][0]).any():
                what = "threads of a block wait at several barriers"
            if what:
                ins = self.program[s.counter[first]]
                raise self.located(Fault(what, first), ins, None)

    def located(self, error: Fault, ins: Decoded, ix: Lanes) -> Fault:
        """A fault that tells where it is."""
        s = self.batch
        thread = error.thread if error.thread is not None else int(s.lanes(ix)[0])
        block, inside = (
            [int(s.special[f"%{name}.{axis}"][thread]) for axis in "xyz"]
            for name in ("ctaid", "tid")
        )
        what = (
            f"{self.kernel.name}, line {ins.source.line}, block {block}, thread "
            f"{inside}: {error.what}, in {ins.source.text!r}"
        )
        return Fault(what, thread)
