"""Instructions as steps: what each does to a batch, and how control goes on.

A `Decoded` of kind "plain" does its `step`; "branch" goes to `target`; "exit" ends a
thread; "barrier" waits for the block; "warp" is done by those threads that `arrived`
tells of, and the others wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import (
    accesses,
    bits,
    comparisons,
    conversions,
    copies,
    floats,
    halves,
    integers,
    objects,
    registers,
    tiles,
    warpgroups,
    warps,
)
from .batch import WARP, Batch, Lanes, Layout, Read, Step
from .faults import Fault
from .forms import Form, split
from .operands import Names, reader, writer
from .program import Instruction, Kernel, Number, Symbol
from .types import Type, named

PRED = named("pred")


@dataclass
class Decoded:
    """An instruction that can be executed; `leader` begins a run of instructions."""

    source: Instruction
    kind: str = "plain"
    step: Step | None = None
    guard: Read | None = None
    target: int = -1
    arrived: Read | None = None
    leader: bool = False


_STEPS: dict[str, Callable[[Instruction, Names], Step]] = {
    "ld": accesses.load,
    "ldu": accesses.load,
    "st": accesses.store,
    "atom": accesses.atomic,
    "red": accesses.atomic,
    "cvta": accesses.convert_address,
    "setp": comparisons.setp,
    "cp": copies.copy,
    "fence": objects.fence,
    "activemask": warps.active_mask,
    "mbarrier": objects.barrier_object,
}
_OF_WARPS: dict[str, tuple[Callable[[Instruction, Names], Step], bool]] = {
    "shfl": (warps.shuffle, False),
    "vote": (warps.vote, False),
    "elect": (warps.elect, True),
    "mma": (tiles.product, True),
    "ldmatrix": (tiles.load_matrices, True),
}
_NOTHING = ("membar", "prefetch", "prefetchu", "nop")


def decoded(kernel: Kernel, names: Names) -> list[Decoded]:
    """All of a kernel's instructions.

    Raises:
        Fault: one of them is not known.
    """
    leaders = set(kernel.labels.values())
    made = []
    for number, ins in enumerate(kernel.body):
        try:
            one = _decoded(ins, kernel, names)
        except (Fault, ValueError, KeyError, IndexError) as error:
            what = (
                f"{kernel.name}, line {ins.line}: {ins.text!r} is not known: {error!r}"
            )
            raise Fault(what) from error
        one.leader = number in leaders
        if ins.guard:
            name, wanted = ins.guard
            one.guard = _guard(names.registers[name], wanted)
        made.append(one)
    return made


def _guard(number: int, wanted: bool) -> Read:
    def read(s: Batch, ix: Lanes) -> np.ndarray:
        held = s.registers[number] if ix is None else s.registers[number][ix]
        return held if wanted else ~held

    return read


def _decoded(ins: Instruction, kernel: Kernel, names: Names) -> Decoded:
    name = ins.name
    if name == "bra":
        (label,) = ins.operands
        if not isinstance(label, Symbol):
            raise Fault(f"{label} is no label")
        return Decoded(ins, "branch", target=kernel.labels[label.name])
    if name in ("ret", "exit"):
        return Decoded(ins, "exit")
    if name in ("bar", "barrier"):
        return _barrier(ins, names)
    if name in _OF_WARPS:
        make, whole = _OF_WARPS[name]
        return Decoded(ins, "warp", make(ins, names), arrived=_lanes(ins, names, whole))
    if name == "wgmma":
        step = warpgroups.instruction(ins, names)
        return Decoded(ins, "warp", step, arrived=warpgroups.arrived)
    if name == "setmaxnreg":
        step, ready = registers.setmaxnreg(ins, names)
        return Decoded(ins, "warp", step, arrived=ready)
    if name == "mbarrier" and ins.modifiers[0] == "try_wait":
        step, over = objects.wait(ins, names)
        return Decoded(ins, "warp", step, arrived=over)
    return Decoded(ins, step=_step(ins, names))


def _lanes(ins: Instruction, names: Names, whole: bool) -> Read:
    """Which threads find the lanes of their member mask beside them."""
    members = warps.members(ins, names)
    return lambda s, ix: warps.arrived(s, ix, members(s, ix), whole=whole)


def _barrier(ins: Instruction, names: Names) -> Decoded:
    """`bar.sync 0`, `barrier.sync 0`, `bar.sync n, threads`, `bar.warp.sync mask`."""
    words = [w for w in ins.modifiers if w not in ("cta", "aligned")]
    if words == ["warp", "sync"]:
        return Decoded(ins, "warp", _meet, arrived=_lanes(ins, names, whole=False))
    if words == ["sync"] and len(ins.operands) == 2:
        return Decoded(ins, "warp", _meet, arrived=_named_barrier(ins, names))
    if words != ["sync"] or ins.operands != (Number(0),):
        raise Fault(f"{ins.text} is not known")
    return Decoded(ins, "barrier")


def _named_barrier(ins: Instruction, names: Names) -> Read:
    """Which threads find as many as are wanted beside them, of their number."""
    number, wanted = (reader(o, named("u32"), names) for o in ins.operands)

    def arrived(s: Batch, ix: Lanes) -> np.ndarray:
        lanes = s.lanes(ix)
        numbers = np.broadcast_to(number(s, ix), len(lanes)).astype(np.int64)
        if ((numbers < 1) | (numbers > 15)).any():
            raise Fault("barriers of some threads are 1 to 15", int(lanes[0]))
        key = s.owner[lanes] * 16 + numbers
        return np.bincount(key)[key] == np.broadcast_to(wanted(s, ix), len(lanes))

    return arrived


def _meet(s: Batch, ix: Lanes) -> None:
    warp = np.unique(s.slots[s.lanes(ix)] // WARP)
    s.shared.barrier_of(np.flatnonzero(np.isin(s.slots // WARP, warp)))


def _step(ins: Instruction, names: Names) -> Step:
    if ins.name == "cp" and "bulk" in ins.modifiers:
        return objects.bulk(ins, names)
    if ins.name in _STEPS:
        return _STEPS[ins.name](ins, names)
    if ins.name in _NOTHING:
        return lambda _s, _ix: None
    if ins.name == "mov":
        return _move(ins, names)
    return elementwise(form_of(ins), ins, names)


def _move(ins: Instruction, names: Names) -> Step:
    _, (kind,) = split(ins.modifiers)
    read = reader(ins.operands[1], kind, names)
    write = writer(ins.operands[0], kind, names)
    return lambda s, ix: write(s, ix, read(s, ix))


def form_of(ins: Instruction) -> Form:
    """The arithmetic of an instruction."""
    words, kinds = split(ins.modifiers)
    if ins.name == "cvt":
        return conversions.form(words, kinds)
    if ins.name in ("selp", "slct"):
        return comparisons.rule(ins.name, kinds)
    if ins.name in ("dp2a", "dp4a"):
        return bits.dot(ins.name, words, kinds)
    (kind,) = kinds
    if kind.name == "pred":
        logic = comparisons.LOGIC[ins.name]
        return Form((PRED,) * (len(ins.operands) - 1), PRED, logic)
    return _rules(kind)[ins.name](words, kind)


def _rules(kind: Type) -> dict[str, Callable[..., Form]]:
    if kind.is_integer:
        return integers.RULES | bits.RULES
    return floats.RULES if kind.name in ("f32", "f64") else halves.RULES


def elementwise(form: Form, ins: Instruction, names: Names) -> Step:
    """Reads, computes, writes."""
    place, *operands = ins.operands
    if len(operands) != len(form.sources):
        raise Fault(f"{len(form.sources)} operands are wanted")
    write = writer(place, form.result, names)
    function = form.function
    reads = [reader(o, t, names) for o, t in zip(operands, form.sources, strict=True)]
    if len(reads) == 2:
        first, second = reads
        return lambda s, ix: write(s, ix, function(first(s, ix), second(s, ix)))
    return lambda s, ix: write(s, ix, function(*[read(s, ix) for read in reads]))


def layout_of(kernel: Kernel, dynamic_shared: int, unit: int) -> Layout:
    """The registers and variables of a kernel for a launch."""
    sizes: dict[str, list[tuple[str, int, int]]] = {"shared": [], "local": []}
    for var in kernel.variables:
        if var.space in sizes:
            size = var.count
            bytes_ = dynamic_shared if size is None else size * named(var.kind).bytes
            align = var.align or named(var.kind).bytes
            sizes[var.space].append((var.name, bytes_, align))
    return Layout(
        tuple(kernel.registers.values()),
        tuple(sizes["shared"]),
        tuple(sizes["local"]),
        unit,
    )


def smallest_access(kernel: Kernel) -> int:
    """The fewest bytes of shared memory that an instruction moves."""
    sizes = [16]
    for ins in kernel.body:
        words = set(ins.modifiers)
        if ins.name in ("ld", "st", "atom", "red") and not words & {
            "global",
            "param",
            "const",
            "local",
        }:
            _, kind, count, _ = accesses.parsed(ins)
            sizes.append(kind.bytes * count)
        elif ins.name == "cp" and ins.modifiers[1] in ("ca", "cg"):
            sizes.append(ins.operands[2].bits)
    return min(sizes)
