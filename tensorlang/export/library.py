"""What an exported library consists of, as plain data for the templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tensorlang import templates
from tensorlang.errors import ArgumentError
from tensorlang.export.c_expressions import plain, total
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.definitions.sizes import evaluate
from tensorlang.ir.dtypes import DType, i64

if TYPE_CHECKING:
    from tensorlang.runtime.signature import Signature
    from tensorlang.targets import Target

ALIGNED: Final = 64
# types whose arithmetic C lacks are passed as their bits
C_TYPES: Final = {
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f32": "float",
    "f64": "double",
    "bool": "uint8_t",
}
_KEYWORDS: Final = """
    auto bool break case char class const continue default delete do double else enum
    extern false float for goto if inline int long namespace new operator private public
    register restrict return short signed sizeof static struct switch template this
    throw true try typedef union unsigned using virtual void volatile while
"""
# local names of the templates' functions that have the library's parameters
_LOCAL: Final = """
    args at base best bytes code count files known launches names need passed pool
    result sizes start stream team temporaries threads words workspace workspace_bytes
"""
_WORDS: Final = frozenset(f"{_KEYWORDS} {_LOCAL}".split())
_CALL: Final = re.compile(r"\b([A-Za-z_]\w+)\s*\(")
# names that the templates make of arrays' names, as `x_bytes` and `x_0`
_MADE: Final = re.compile(r".*_(bytes|\d+)")


@cache
def _words() -> frozenset[str]:
    """Words that a name in C must not be: C's own, and those of the templates."""
    files = Path(templates.__file__).parent.glob("export*.j2")
    called = (_CALL.findall(file.read_text("utf-8")) for file in files)
    return _WORDS.union(*called, ("n",))


def c_type(dtype: DType) -> str:
    """The type of an element in C."""
    unsigned = "u" if dtype.kind == "uint" else ""
    return C_TYPES.get(dtype.name, f"{unsigned}int{dtype.bits}_t")


def c_name(text: str) -> str:
    """A name as one of C that nothing else in the library has."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    own = name in _words() or _MADE.fullmatch(name) or not name[:1].isalpha()
    return f"{name}_" if own else name


def library_name(text: str) -> str:
    """A name that begins the names of files and functions.

    Raises:
        ArgumentError: it is no identifier of C.
    """
    if text in _words():
        raise ArgumentError(
            f"{text!r} begins the names of files and C functions, and is a reserved "
            "word or a name that the library uses: give another"
        )
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", text):
        raise ArgumentError(
            f"{text!r} begins the names of files and C functions: give up to 64 "
            "letters, digits and underscores, a letter first"
        )
    return text


@frozen
class Array:
    """An array that the caller passes; `shape` is in terms of the library's sizes."""

    name: str
    dtype: DType
    role: str
    shape: tuple[ir.Expr, ...]

    @property
    def c_type(self) -> str:
        """The type of a parameter for it."""
        return f"{'const ' if self.role == 'in' else ''}{c_type(self.dtype)} *"

    @property
    def written(self) -> bool:
        """Whether the library writes it."""
        return self.role != "in"

    @property
    def bytes(self) -> str:
        """Its size, as C."""
        return plain(total(self.shape, self.dtype.bytes))

    @property
    def extents(self) -> list[str]:
        """Its shape, as C."""
        return [plain(extent) for extent in self.shape]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"

    def size(self, sizes: Mapping[str, int]) -> int:
        """The number of its elements for these sizes."""
        values = {ir.Var(name, i64): value for name, value in sizes.items()}
        return int(evaluate(total(self.shape), values))


@frozen
class Scalar:
    """A number that the caller passes, with an example."""

    name: str
    dtype: DType
    example: float

    @property
    def c_type(self) -> str:
        """Its type in C."""
        return c_type(self.dtype)


class Place(Protocol):
    """What code is exported for."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def target(self) -> Target:
        """What schedules know of it."""


class Code(Protocol):
    """A compiled kernel."""

    @property
    def symbol(self) -> str:
        """Begins the names of its symbols."""

    @property
    def signature(self) -> Signature:
        """Its buffers and scalars."""


@frozen
class Launch:
    """One kernel with its arguments."""

    kernel: Code
    title: str  # what it computes
    slots: tuple[str, ...]  # its arguments as C expressions of 64 bits
    bytes: str  # size of its arrays, as C


@frozen
class Program:
    """The launches of a call, for one machine and a range of sizes."""

    machine: Place
    guards: tuple[str, ...]  # conditions on the sizes, as C, in this order
    launches: tuple[Launch, ...]  # what runs, in order
    memory: int = 0  # bytes of the values that launches pass on
    copies: tuple[tuple[str, str, str], ...] = ()  # copies at the end: to, from, bytes

    def uses(self, name: str) -> bool:
        """Whether a parameter of the function plays a part."""
        texts = [
            text for launch in self.launches for text in (*launch.slots, launch.bytes)
        ]
        texts += [text for copy in self.copies for text in copy]
        return any(re.search(rf"\b{name}\b", text) for text in texts)


@frozen
class Library:
    """A function to export."""

    name: str  # begins all names
    title: str  # what it computes, in a line
    sizes: Mapping[str, int]  # sizes that a caller passes, with examples
    arrays: tuple[Array, ...]  # arrays that a caller passes
    # what is run; of a machine the first whose guards hold
    programs: tuple[Program, ...]
    scalars: tuple[Scalar, ...] = ()  # numbers that a caller passes
    # pairs of arrays, by position, that may be the same memory
    aliases: tuple[tuple[int, int], ...] = ()
    # data that is part of the library
    constants: bytes = field(default=b"", repr=False)
    # how the numbers follow from others, in lines of Python
    formulas: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        arrays = (array.name for array in self.arrays)
        numbers = (scalar.name for scalar in self.scalars)
        if self.name in (*self.sizes, *arrays, *numbers):
            raise ArgumentError(f"{self.name!r} is a parameter too: give another name")

    @property
    def machines(self) -> tuple[Place, ...]:
        """The machines, best first."""
        return tuple(dict.fromkeys(program.machine for program in self.programs))

    @property
    def overlaps(self) -> list[tuple[Array, Array, bool]]:
        """Pairs of arrays of which one is written; True if they may be the same."""
        allowed = {frozenset(pair) for pair in self.aliases}
        pairs = ((i, j) for j in range(len(self.arrays)) for i in range(j))
        return [
            (self.arrays[i], self.arrays[j], frozenset((i, j)) in allowed)
            for i, j in pairs
            if self.arrays[i].written or self.arrays[j].written
        ]


def total_bytes(arrays: Iterable[Array]) -> str:
    """The size of several arrays, as C."""
    return " + ".join(array.bytes for array in arrays) or "0"
