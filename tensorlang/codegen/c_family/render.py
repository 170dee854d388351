"""Render a lowered function as C: `render(function, target)`.

The templates have a macro per IR node, of the same name. `c_family.j2` defines all;
`opencl.cl.j2` and `cuda.cu.j2` override those that differ in the language. In a
language with vector types, `Vector...` macros print vector nodes. Macros print children
with `emit`, call each other through `c`, and request prelude functions with `need`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tensorlang import templates
from tensorlang.codegen.c_family import atomics, forms, rotations, vectors
from tensorlang.codegen.c_family.literals import literal
from tensorlang.codegen.c_family.selects import tidy_selects
from tensorlang.codegen.copies import copied_from
from tensorlang.codegen.headers import header
from tensorlang.codegen.hopper import printing as hopper
from tensorlang.codegen.short_names import in_text, short_names
from tensorlang.codegen.simt.host import Launch, around_launches, is_private, launches
from tensorlang.codegen.simt.indices import MOST_BYTES
from tensorlang.codegen.simt.multi_tensor import multi_tensor_launch
from tensorlang.codegen.simt.nonempty import sizes_in_launch
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import is_collective
from tensorlang.ir.contents import free_vars, reads, writes
from tensorlang.ir.dtypes import DType, u32
from tensorlang.ir.integers.bounds import ranges_in
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.natives import COPY_SYNCS
from tensorlang.ir.simplification.rules import Simplifier
from tensorlang.ir.visit import holds
from tensorlang.targets import Target

_TEMPLATES: Final = {
    "opencl": ("c_family.j2", "atomics.j2", "opencl.cl.j2", "opencl_vectors.cl.j2"),
    "cuda": (
        "c_family.j2",
        "atomics.j2",
        "cuda.cu.j2",
        "hopper.cu.j2",
        "multi_tensor.cu.j2",
    ),
}
_ON_CPU: Final = "opencl_cpu.cl.j2"


def printable(function: ir.Function, target: Target) -> ir.Function:
    """A lowered function with selects as C is best at, which is what is printed."""
    return function if target.model == "cpu" else tidy_selects(function)


def render(
    function: ir.Function, target: Target, knobs: Mapping[str, object] | None = None
) -> str:
    """The source of a lowered function's launches, with a header.

    Raises:
        CodegenError: the function is not lowered, or the language lacks a node.
    """
    return printed(Printer(printable(function, target), target), knobs or {})


def printed(printer: Printer, knobs: Mapping[str, object]) -> str:
    """The source of a printer's function; see `render`."""
    function, target = printer.function, printer.target
    shown = short_names(function)
    kernels = [in_text(printer.kernel(launch), shown) for launch in launches(function)]
    prelude = printer.prelude()
    return str(
        printer.macros["Source"](
            header=header(function, target, knobs),
            types=sorted(printer.types, key=_width),
            prelude=prelude,
            kernels=kernels,
        )
    )


def _width(name: str) -> tuple[bool, int, str]:
    """Sort key: scalar types before vector types."""
    return "x" in name, len(name), name


def _templates(target: Target) -> tuple[str, ...]:
    """The template files of a target; later ones override earlier ones."""
    on_cpu = (_ON_CPU,) if target.model == "cpu" else ()
    return (*_TEMPLATES[target.kind], *on_cpu)


def _exchanged(launch: Launch) -> frozenset[ir.Buffer]:
    """Buffers that must not be `restrict`: compilers hoist such loads over barriers."""
    if not holds(launch.nest, ir.Barrier):
        return frozenset()
    return reads(launch.nest) & writes(launch.nest)


@dataclass(frozen=True)
class _Macros:
    """The macros by name, with the language's overrides."""

    found: Mapping[str, Callable[..., str]]

    def __getattr__(self, name: str) -> Callable[..., str]:
        return self[name]

    def __getitem__(self, name: str) -> Callable[..., str]:
        if name not in self.found:
            raise CodegenError(f"C code has no {name}: the templates have no macro")
        return self.found[name]


class Printer:
    """Prints nodes by their macros, and records the types and functions they need."""

    def __init__(self, function: ir.Function, target: Target) -> None:
        self.function = function
        self.target = target
        self.sizes = size_ranges(function, MOST_BYTES)
        self.host = around_launches(function.body)
        self.types: set[str] = set()
        self.needed: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.facts = forms.Facts(ir.Seq(()), {})
        self.launch: Launch | None = None
        self.tiles: dict[ir.Buffer, int] = {}
        self.wide: frozenset[ir.Buffer] = frozenset()
        self.exchanged: frozenset[ir.Buffer] = frozenset()
        self.products: frozenset[int] = frozenset()
        # texts of the launch's expressions, by identity: statements share many
        self._texts: dict[int, tuple[ir.Expr, str]] = {}
        given = {
            "emit": self.emit,
            "need": self.need,
            "typed": self.typed,
            "literal": literal,
            "paren": self.paren,
            "binds": forms.binds,
            "form": self.form,
            "fits": self.fits,
            "symbols": forms.SYMBOLS,
            "levels": forms.LEVELS,
            "is_private": is_private,
            "is_exchanged": self.is_exchanged,
            "is_product": self.is_product,
            "is_wrapping": self.is_wrapping,
            "is_contiguous": vectors.is_contiguous,
            "is_number": vectors.is_number,
            "picked": vectors.picked,
            "promoted": forms.promoted,
            "same_in_all_lanes": vectors.same_in_all_lanes,
            "space": self.space,
            "tile": self.tile,
            "unpromoted": forms.unpromoted,
            "is_wide": self.is_wide,
            "tile_index": self.tile_index,
            "is_collective": is_collective,
            "copied_from": copied_from,
            "copy_syncs": COPY_SYNCS,
            "dtype": DType,
            "combination": atomics.combination,
            "plain_update": atomics.plain_update,
            **hopper.helpers(self.current),
        }
        found: dict[str, Callable[..., str]] = {}
        self.macros = _Macros(found)
        environment = templates.jinja.environment()
        for name in _templates(target):
            module = environment.get_template(name).make_module(
                {**given, "c": self.macros}
            )
            found.update({k: v for k, v in vars(module).items() if callable(v)})

    def kernel(self, launch: Launch) -> str:
        """The source of one launch's kernel."""
        sizes = sizes_in_launch(launch.grid, self.sizes)
        self.facts = forms.Facts(launch.nest, ranges_in(self.host, sizes))
        self.launch = launch
        self._texts = {}
        self.tiles = vectors.tiles(launch) if self.has_vectors else {}
        self.wide = vectors.wide(launch)
        self.exchanged = _exchanged(launch)
        has_products = "rotl_product" in self.macros.found
        self.products = rotations.products(launch.body) if has_products else frozenset()
        used = free_vars(launch.body)
        indices = [
            loop
            for loop in (*launch.blocks, *launch.threads)
            if launch.scratch or loop.var in used
        ]
        of = (
            multi_tensor_launch(self.function)
            if "KernelOfSets" in self.macros.found
            else None
        )
        macro = self.macros["KernelOfSets" if of else "Kernel"]
        return str(macro(of or launch, writes(launch.nest), indices))

    def is_exchanged(self, buffer: ir.Buffer) -> bool:
        """Whether threads may read what others wrote to a buffer after a barrier."""
        return buffer in self.exchanged

    @property
    def has_vectors(self) -> bool:
        """Whether the language has vector types."""
        return "VectorBinary" in self.macros.found

    def emit(self, node: ir.Node) -> str:
        """Print a node by its macro, or by the vector macro for vectors."""
        if not isinstance(node, ir.Expr):
            return self._printed(node)
        known = self._texts.get(id(node))
        if known is None:
            known = self._texts[id(node)] = node, self._printed(node)
        return known[1]

    def _printed(self, node: ir.Node) -> str:
        name = type(node).__name__
        if vectors.lanes_of(node) > 1 and f"Vector{name}" in self.macros.found:
            return self.macros[f"Vector{name}"](node)
        return self.macros[name](node)

    def current(self) -> Launch:
        """The launch being printed."""
        assert self.launch is not None
        return self.launch

    def tile(self, buffer: ir.Buffer) -> int:
        """Lanes of a private array of vectors; 0 for an array of scalars."""
        return self.tiles.get(buffer, 0)

    def is_wide(self, buffer: ir.Buffer) -> bool:
        """Whether a private array is accessed by vectors."""
        return buffer in self.wide

    def is_product(self, rotation: ir.Call) -> bool:
        """Whether a rotation is written as a multiplication; see `rotations`."""
        by = rotation.args[1]
        plain = isinstance(by, ir.Const) and rotation.dtype == u32
        return plain and int(by.value) in self.products  # type: ignore[attr-defined]

    def space(self, buffer: ir.Buffer) -> str:
        """The address space of a buffer: `global`, `local` or `private`."""
        assert self.launch is not None
        if buffer in self.launch.shared:
            return "local"
        return "global" if buffer in self.launch.buffers else "private"

    def form(self, expr: ir.Binary) -> str:
        """The form of an operation; see `forms`."""
        return self.facts.form(expr)

    def fits(self, expr: ir.Binary | ir.Unary) -> bool:
        """Whether an operation is proven not to wrap."""
        return self.facts.fits(expr)

    def tile_index(self, index: ir.Ramp) -> ir.Expr:
        """Index of a vector in its tile."""
        return Simplifier(self.facts.known).visit(index.base // index.lanes)

    def is_wrapping(self, expr: ir.Expr) -> bool:
        """Whether an operation is signed and may wrap."""
        return isinstance(expr, ir.Binary) and self.form(expr) == "wrapped"

    def paren(self, expr: ir.Expr, around: int, right: bool = False) -> str:
        """An operand, parenthesised if necessary."""
        text = self.emit(expr)
        return text if self.facts.bare(expr, around, right=right) else f"({text})"

    def typed(self, dtype: DType | str) -> str:
        """The name of a type, recorded to be defined at the head of the source."""
        name = str(dtype)
        if name != "bool":
            self.types.add(name)
            self.types.add(name.partition("x")[0])
        return name

    def need(self, macro: str, *given: DType | str) -> str:
        """The name of a prelude function, recorded to be printed."""
        names = tuple(map(str, given))
        title = "_".join((macro, *names))
        self.needed.setdefault(title, (macro, names))
        return title

    def prelude_function(self, macro: str, names: tuple[str, ...]) -> str:
        """A prelude function; of vectors by its own macro if any, else lane by lane."""
        if not any("x" in name for name in names):
            return str(self.macros[macro](*names))
        if f"{macro}_of_vectors" in self.macros.found:
            return str(self.macros[f"{macro}_of_vectors"](*names))
        return str(self.macros["EachLane"](macro, *names))

    def prelude(self) -> list[str]:
        """The requested functions, each after those that it calls."""
        texts: dict[str, str] = {}

        def add(title: str) -> None:
            macro, names = self.needed[title]
            known = set(self.needed)
            text = self.prelude_function(macro, names)
            for other in sorted(self.needed.keys() - known):
                if other not in texts:
                    add(other)
            for other in list(self.needed):
                if other != title and other not in texts and f"{other}(" in text:
                    add(other)
            texts.setdefault(title, text)

        for title in sorted(self.needed):
            if title not in texts:
                add(title)
        return list(texts.values())
