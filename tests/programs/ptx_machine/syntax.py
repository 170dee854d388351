"""The text of PTX, as kernels of instructions.

    @%p1 ld.global.nc.v2.f32 {%f1, %f2}, [%rd1+8];

is `Instruction(guard=("%p1", True), name="ld", modifiers=("global", "nc", "v2", "f32"),
operands=(Vector((Register("%f1"), Register("%f2"))), Address(Register("%rd1"), 8)))`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .faults import Fault
from .program import (
    Address,
    Instruction,
    Kernel,
    Number,
    Register,
    Symbol,
    Variable,
    Vector,
)

_ENTRY = re.compile(
    r"(?:\.(?:visible|weak)\s+)?\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?([^{]*)\{"
)
_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak)\s+)?\.(global|const|shared|local)\s+"
    r"(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*(.*))?$",
    re.DOTALL,
)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)(?:\s+\.\w+(?:\s+\.align\s+\d+)?)?\s+([\w$]+)(?:\[(\d+)\])?"
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)
_RANGE = re.compile(r"([\w$%]+)<(\d+)>")
_LABEL = re.compile(r"([\w$]+)\s*:(?!:)")
_GUARD = re.compile(r"@(!?)([\w$%]+)\s+")
_HEADER = re.compile(r"\.(?:version|target|address_size|pragma|file|loc)\b[^\n;]*;?")
_NUMBER = re.compile(
    r"-?(0[xX][0-9a-fA-F]+|0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d+)U?$"
)


def load(text: str) -> dict[str, Kernel]:
    """The kernels of a module, by name."""
    text = re.sub(r"//[^\n]*", "", text)
    kernels: dict[str, Kernel] = {}
    outside: list[Variable] = []
    place = 0
    while (place := _start(text, place)) < len(text):
        if header := _HEADER.match(text, place):
            place = header.end()
        elif entry := _ENTRY.match(text, place):
            name, params, bounds = entry.groups()
            kernel = Kernel(name, _params(params or ""), bounds)
            place = _body(text, entry.end(), kernel)
            kernels[name] = kernel
        else:
            end = text.find(";", place)
            found = _VARIABLE.match(text[place:end].strip())
            if end < 0 or not found:
                raise Fault(f"line {_line(text, place)}: {text[place : place + 60]!r}")
            outside.append(_variable(found))
            place = end + 1
    for kernel in kernels.values():
        kernel.variables[:0] = outside
    return kernels


def _start(text: str, place: int) -> int:
    found = re.compile(r"\S").search(text, place)
    return found.start() if found else len(text)


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _params(text: str) -> list[Variable]:
    return [
        Variable("param", name, kind, int(align or 0), int(count or 1), None)
        for align, kind, name, count in _PARAM.findall(text)
    ]


def _variable(found: re.Match[str]) -> Variable:
    space, align, kind, name, count, initial = found.groups()
    size = None if count == "" else int(count or 1)
    return Variable(space, name, kind, int(align or 0), size, initial)


def _body(text: str, place: int, kernel: Kernel) -> int:
    """Read up to the brace that ends a kernel; names in inner braces are their own."""
    scopes: list[dict[str, str]] = [{}]
    line, seen = _line(text, place), place
    for kind, start, end in _statements(text, place):
        line, seen = line + text.count("\n", seen, start), start
        said = text[start:end]
        if kind == "open":
            scopes.append(_inner(text, end, scopes[-1], start))
        elif kind == "close":
            if len(scopes) == 1:
                return end
            scopes.pop()
        elif kind == "label":
            name = said.rstrip(": \t\n")
            kernel.labels[scopes[-1].get(name, name)] = len(kernel.body)
        else:
            _statement(said.strip(), line, kernel, scopes[-1])
    raise Fault(f"kernel {kernel.name} does not end")


def _statements(text: str, place: int) -> Iterator[tuple[str, int, int]]:
    while (place := _start(text, place)) < len(text):
        if text[place] in "{}":
            yield ("open" if text[place] == "{" else "close"), place, place + 1
            place += 1
        elif label := _LABEL.match(text, place):
            yield "label", place, label.end()
            place = label.end()
        else:
            end = text.index(";", place)
            yield "statement", place, end
            place = end + 1


def _inner(text: str, place: int, outer: dict[str, str], at: int) -> dict[str, str]:
    """The names that a scope declares, made different from all others."""
    end = text.index("}", place)
    names = re.findall(r"\.reg\s+\.\w+\s+([^;<]+);", text[place:end])
    own = [n.strip() for group in names for n in group.split(",")]
    own += _LABEL.findall(text[place:end])
    return outer | {name: f"{name}@{at}" for name in own}


def _statement(said: str, line: int, kernel: Kernel, names: dict[str, str]) -> None:
    if found := _REGISTERS.match(said):
        for name in (n.strip() for n in found[2].split(",")):
            many = _RANGE.fullmatch(name)
            each = [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]
            kernel.registers |= {names.get(n, n): found[1] for n in each}
    elif found := _VARIABLE.match(said):
        kernel.variables.append(_variable(found))
    elif not said.startswith("."):
        kernel.body.append(_instruction(said, line, kernel, names))
    elif not _HEADER.match(said):
        raise Fault(f"line {line}: {said!r} is not known")


def _instruction(
    said: str, line: int, kernel: Kernel, names: dict[str, str]
) -> Instruction:
    text, guard = said, None
    if found := _GUARD.match(said):
        guard = (names.get(found[2], found[2]), not found[1])
        said = said[found.end() :]
    word, _, rest = said.replace("\t", " ").replace("\n", " ").partition(" ")
    name, *modifiers = re.sub(r"::", "@", word).split(".")
    operands = tuple(_operand(o, kernel, names) for o in _split(rest, ","))
    return Instruction(line, text, guard, name, tuple(modifiers), operands)


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "{[(") - (letter in "}])")
        if letter == separator and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _operand(text: str, kernel: Kernel, names: dict[str, str]) -> object:
    if text[0] == "{":
        inside = _split(text[1:-1], ",")
        return Vector(tuple(_operand(t, kernel, names) for t in inside))
    if "|" in text:
        return Vector(tuple(_operand(t, kernel, names) for t in _split(text, "|")))
    if text[0] == "[" and "," in text:
        place, told = _split(text[1:-1], ",")
        return Vector(tuple(_operand(t, kernel, names) for t in (f"[{place}]", told)))
    if text[0] == "[":
        base, sign, offset = re.fullmatch(
            r"\[\s*([\w$%.]+)\s*(\+?)\s*(-?\w+)?\s*\]", text
        ).groups()
        bare = _operand(base, kernel, names)
        whole = int(offset, 0) if sign else 0
        if isinstance(bare, Number):
            return Address(None, bare.bits + whole)
        return Address(bare, whole)
    if text[0] == "!":
        return Register(names.get(text[1:], text[1:]), negated=True)
    if _NUMBER.match(text):
        return _number(text.rstrip("U"))
    name = names.get(text, text)
    return (
        Register(name) if name in kernel.registers or name[0] == "%" else Symbol(name)
    )


def _number(text: str) -> Number:
    if text[:2].lower() in ("0f", "0d"):
        return Number(int(f"0x{text[2:]}", 0), 4 * len(text[2:]))
    return Number(int(text, 0))
