"""`setp`, `set`, `selp`, `slct` (PTX ISA, 9.7.6).

A comparison of floats is false where one is NaN; those that end in `u` are true there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .batch import Batch, Lanes, Step
from .faults import Fault
from .forms import Form
from .halves import to_single
from .operands import Names, reader, writer
from .program import Instruction, Vector
from .types import NAMES, Type, named

Test = Callable[[np.ndarray, np.ndarray], np.ndarray]
_ORDERED: dict[str, Test] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_JOINED = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
PRED, S32, F32 = named("pred"), named("s32"), named("f32")


def test_of(word: str, t: Type) -> Test:
    """The function of a comparison."""
    if not t.is_float:
        return _ORDERED[_UNSIGNED.get(word, word)]

    def compare(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = (to_single(x, t) if t.bits == 16 else x for x in (a, b))
        unordered = np.isnan(a) | np.isnan(b)
        if word in ("num", "nan"):
            return unordered == (word == "nan")
        if word in _ORDERED:
            return _ORDERED[word](a, b) & ~unordered
        return _ORDERED[word[:2]](a, b) | unordered

    return compare


def setp(ins: Instruction, names: Names) -> Step:
    """`setp.test{.join}.type p{|q}, a, b{, c}`: q is p with the test turned round."""
    word, *rest = ins.modifiers
    kind = named(rest[-1])
    joined = _joined(rest[:-1])
    if len(rest) > 2 or word not in {*_ORDERED, *_UNSIGNED, "num", "nan"} | _LOOSE:
        raise Fault(f"setp.{'.'.join(ins.modifiers)} is not known")
    compare = test_of(word, kind)
    places = ins.operands[0]
    both = places.parts if isinstance(places, Vector) else (places,)
    writes = [writer(p, PRED, names) for p in both]
    reads = [reader(o, kind, names) for o in ins.operands[1:3]]
    extra = [reader(o, PRED, names) for o in ins.operands[3:]]

    def step(s: Batch, ix: Lanes) -> None:
        holds = compare(*(read(s, ix) for read in reads))
        for write, value in zip(writes, (holds, ~holds), strict=False):
            write(s, ix, joined(value, extra[0](s, ix)) if extra else value)

    return step


_LOOSE = {"equ", "neu", "ltu", "leu", "gtu", "geu"}


def _joined(words: list[str]) -> Callable[..., np.ndarray]:
    return _JOINED[words[0]] if words else np.logical_and


def rule(name: str, kinds: list[Type]) -> Form | None:
    """`selp.t d, a, b, p` and `slct.t.u d, a, b, c` as operations on each thread."""
    if name == "selp":
        (t,) = kinds
        return Form((t, t, PRED), t, lambda a, b, p: np.where(p, a, b))
    if name == "slct":
        t, by = kinds
        return Form((t, t, by), t, lambda a, b, c: np.where(c >= 0, a, b))
    return None


def predicates(ins: Instruction) -> bool:
    """Whether an instruction's type is a predicate."""
    return ins.modifiers[-1:] == ("pred",)


LOGIC: dict[str, Callable[..., np.ndarray]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
}


__all__ = ["LOGIC", "NAMES", "predicates", "rule", "setp", "test_of"]
