"""Schedules for CPUs have no constants measured on one machine.

Numbers above 8 are options of knobs, come from the machine, or are in this list, by
name, with the reason. A number without a name is not allowed.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorlang import schedules

FOLDER = Path(schedules.__file__).parent
CPU_FILES = sorted(set(FOLDER.rglob("*.py")) - set(FOLDER.rglob("simt/*.py")))
LARGE = 8
REASONS = {
    "attention._LANES": "queries side by side in the definition",
    "contraction/choice._FEW_AND_MANY": "numbers of rows that stand for an open one",
    "contraction/choice._MANY_TILES": "a value of the knob block_tiles to compare",
    "contraction/space.USUAL_SIZE": "a size that stands for an open one",
    "convolution/tiles.MOST_TAPS": "products of a loop body, whose code is cached",
    "cost/core.PAGE": "bytes of a page of memory",
    "cost/core.REFILL": "cycles to fill a pipeline",
    "cost/core._ANY": "vectors and registers of a schedule without a target",
    "contraction/dot_groups._SIGN": "the sign bit of a byte",
    "generic._MOST_FOLDED": "operations of an epilogue that compile fast in tiles",
    "contraction/matrix_model._BYTES": "bytes of a row of a tile register",
    "contraction/matrix_model._SPLITTING": "operations to split off one bf16 part",
    "contraction/matrix_tiles._OPEN": "rows of one and of two tile registers",
    "convolution/winograd._LANES": "channels of a block in the definition",
}


def assigned(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The constants of a module, by name."""
    for node in module.body:
        match node:
            case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
                yield name, value
            case ast.Assign(targets=[ast.Name(name)], value=value):
                yield name, value


def large(node: ast.AST) -> list[ast.Constant]:
    """The integers above the limit; `1 << 10` is one, too."""
    shifted = {
        each.left
        for each in ast.walk(node)
        if isinstance(each, ast.BinOp)
        and isinstance(each.op, ast.LShift)
        and isinstance(each.right, ast.Constant)
    }
    return [
        each
        for each in ast.walk(node)
        if isinstance(each, ast.Constant)
        and type(each.value) is int
        and (abs(each.value) > LARGE or each in shifted)
    ]


def used(node: ast.AST) -> set[str]:
    """The names in an expression."""
    found: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.Name(name) | ast.Attribute(ast.Name(), name):  # SIDES, space.SIDES
                found.add(name)
    return found


def option_names(module: ast.Module) -> set[str]:
    """Constants whose elements are options of a knob, or candidates for it."""
    found: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(attr="choice"), args=[_, options, *_]):
                found |= used(options)
            case ast.comprehension(iter=candidates):
                found |= used(candidates)
    return found


def constants(folder: Path, files: list[Path]) -> tuple[set[str], list[str]]:
    """Named constants that are no options, and the lines of numbers without a name."""
    modules = {file: ast.parse(file.read_text()) for file in files}
    options = set[str]().union(*map(option_names, modules.values()))
    named, bare = set(), []
    for file, module in modules.items():
        inside: set[ast.Constant] = set()
        for name, value in assigned(module):
            numbers = large(value)
            inside |= set(numbers)
            alike = isinstance(value, ast.Tuple | ast.Call | ast.Name)
            if numbers and not (name in options and alike):
                named.add(f"{file.relative_to(folder).with_suffix('')}.{name}")
        bare += [f"{file.name}:{n.lineno}" for n in large(module) if n not in inside]
    return named, bare


def test_numbers_have_a_name_and_a_reason():
    named, bare = constants(FOLDER, CPU_FILES)
    assert bare == []
    assert named == REASONS.keys()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("_ROWS: Final = 20", ({"x._ROWS"}, [])),
        ("SIZE = 1 << 4", ({"x.SIZE"}, [])),
        ("def f():\n    return 32", (set(), ["x.py:2"])),
        ("_OPTIONS = (16, 32)\nknobs.choice('n', _OPTIONS, default=8)", (set(), [])),
        ("_OPTIONS = (16,)\nknobs.choice('n', _OPTIONS, 16)", (set(), ["x.py:2"])),
        ("_ROWS = range(1, 15)\nbest = [n for n in _ROWS]", (set(), [])),
        ("_FEW = 8", (set(), [])),
    ],
)
def test_what_counts_as_a_constant(tmp_path, text, found):
    file = tmp_path / "x.py"
    file.write_text(text)
    assert constants(tmp_path, [file]) == found
