"""Pages of the documentation that follow from the operators themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir import show
from tensorlang.ops import building
from tensorlang.scheduling import Knobs
from tensorlang.targets import Target
from tensorlang.tuner.tolerance import reassociation

if TYPE_CHECKING:
    from tensorlang.ops import Operator

# pages must not depend on the machine that writes them
_TARGET: Final = Target(device="a CPU with vectors of 256 bits")
_SECTION: Final = re.compile(r"(Args|Returns|Raises|Yields|Attributes):\s*")
_ENTRY: Final = re.compile(r" {4}([^\s:][^:]*): (.*)")

_MIXING: Final = """\
Types are called `f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool`, where the number
counts bits, or by NumPy's full names, as `float32` or `bfloat16`. NumPy's types and
those of `ml_dtypes` do, too; Python's `float`, `int` and `bool` are f64, i64 and bool,
as in NumPy. Its codes, which count bytes (`"f8"` is its `float64`), and words of
several meanings (`"float"`, `"long"`) are refused.

In the IR both sides of an operation have one type: nothing is converted silently, a
literal takes the type of the other side, and every conversion is a written `cast`.

| together | what happens |
|---|---|
| one type with itself | that type comes out; integers wrap |
| two different types | `DTypeError`, naming both; cast one of them |
| a type and a literal | the literal takes the type if it is a value of it, else \
`DTypeError` |
| an array and a Python number | the number takes the array's type, as a literal does; \
`np.float64`, which is a Python float, counts as one |
| an array and another NumPy scalar | an array of the scalar's type: `np.float32(2)` \
is f32 |
| integers and floats | never mixed: an integer becomes a float only by a `cast` |
| a sum over f16 or bf16 | accumulated in f32 where the operator says so, and rounded \
once at the end |
| subnormal numbers | kept everywhere, but for products of bf16 by the instructions of \
AVX512-BF16, which take them for 0 |

What each operator takes, and what comes out:
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; none where there are no rows."""
    lines = [" | ".join(map(_cell, row)) for row in rows]
    if not lines:
        return []
    rule = "|".join("---" for _ in head)
    return [f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {line} |" for line in lines)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def operator(op: Operator, *, pictured: bool = False) -> str:
    """The page of an operator; `pictured` where there is a roofline beside it."""
    parts = [f"# {op.id}", "", *_head(op), ""]
    parts += ["```python", f"{op.id}{signature(op)}", "```", ""]
    parts += [*_prose(inspect.cleandoc(op.__doc__ or "")), ""]
    parts += ["## Algorithms", "", *_algorithms(op), ""]
    parts += ["## Cost", "", *_cost(op), ""]
    if pictured:
        shown = f"![{op.id} under the machine's limits]({op.id}.svg)"
        parts += ["Measured kernels under the machine's limits:", "", shown, ""]
    parts += ["## Knobs", "", *_knobs(op), ""]
    parts += ["## Reference", "", f"The definition of `{op.workload()}`:", ""]
    parts += ["```python", show(op.function(op.workload())), "```"]
    return "\n".join(parts) + "\n"


def signature(op: Operator) -> str:
    """How it is called: names and defaults."""
    found = inspect.signature(op.__wrapped__)
    bare = [
        p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()
    ]
    return str(inspect.Signature(bare))


def _head(op: Operator) -> list[str]:
    usual = op.workload()
    facts = {
        "id": f"`{op.id}`",
        "aliases": ", ".join(f"`{alias}`" for alias in op.aliases) or "none",
        "family": f"`{op.family}`" if op.family else "none",
        "element types": ", ".join(f"`{name}`" for name in op.dtypes) or "any",
        "attributes": ", ".join(f"`{k}={v}`" for k, v in usual.attributes) or "none",
    }
    return [f"* **{name}**: {text}" for name, text in facts.items()]


def _prose(doc: str) -> Iterator[str]:
    """A docstring as Markdown: sections as bold words, their entries as lists."""
    inside = False
    for line in doc.splitlines():
        section = _SECTION.fullmatch(line)
        entry = _ENTRY.fullmatch(line) if inside else None
        if section:
            inside = True
            yield f"**{section[1]}**"
            yield ""
        elif entry:
            yield f"* `{entry[1]}`: {entry[2]}"
        elif inside and line.startswith("    "):
            yield f"  {line.strip()}"
        else:
            inside = inside and not line
            yield line


def _algorithms(op: Operator) -> list[str]:
    usual = op.workload()
    free = reassociation(op.function(usual), op.sizes(usual))
    exact = "as its sums in any order: (16 + 4 sqrt(terms)) machine epsilons"

    def tolerance(allowed: float) -> str:
        return f"{allowed:g}" if allowed else exact if free else "exact: equal bits"

    head = ("algorithm", "relative error allowed against the reference")
    return table(
        head, [(f"`{a.name}`", tolerance(a.tolerance)) for a in op.algorithms.values()]
    )


def _cost(op: Operator) -> list[str]:
    cost = op.cost()
    rows = [
        ("floating-point operations", cost.float_ops),
        ("integer operations", cost.integer_ops),
        ("bytes read", cost.bytes_read),
        ("bytes written", cost.bytes_written),
    ]
    return table(("of one call", ""), [(name, f"`{show(e)}`") for name, e in rows])


def _knobs(op: Operator) -> list[str]:
    """The knobs of each algorithm's schedule, with their domains and defaults."""
    lines: list[str] = []
    for name, algorithm in op.algorithms.items():
        if not algorithm.serves(op.workload()):
            lines += [f"`{name}` serves other workloads than the usual one.", ""]
            continue
        if not building.schedules(op, name, _TARGET):
            lines += [f"`{name}` has no schedule of its own and no knobs.", ""]
            continue
        knobs = Knobs()
        building.schedule(op, op.workload(), _TARGET, name, knobs)
        rows = [
            (f"`{knob}`", str(domain), f"`{knobs.values[knob]}`")
            for knob, domain in knobs.domains.items()
        ]
        made = table(("knob", "domain", "default"), rows)
        lines += [
            f"Of `{name}`, with the defaults for {_TARGET.device}:",
            "",
            *made,
            "",
        ]
    return lines[:-1]


def listing(known: Sequence[Operator]) -> str:
    """The page that lists the operators."""
    rows = [
        (
            f"[{op.id}](operators/{op.id}.md)",
            ", ".join(op.aliases),
            op.family,
            (op.__doc__ or "").strip().partition("\n")[0],
        )
        for op in known
    ]
    lines = table(("operator", "aliases", "family", "what it does"), rows)
    return "\n".join(["# Operators", "", *lines]) + "\n"


def dtypes(known: Sequence[Operator]) -> str:
    """The page of element types: how they mix, and what each operator gives."""
    rows = [(f"`{op.id}`", "; ".join(_conversions(op))) for op in known]
    lines = table(("operator", "takes and gives"), rows)
    return "\n".join(["# Element types", "", _MIXING, *lines]) + "\n"


def _conversions(op: Operator) -> Iterator[str]:
    for dtype in op.dtypes:
        given = ", ".join(map(str, _given(op, dtype)))
        yield f"{dtype} to {given}" if given != dtype else dtype


def _given(op: Operator, dtype: str) -> list[Any]:
    """The element types of the results for a workload of a type."""
    usual = op.workload()
    extra: dict[str, Any] = {}
    if "impl" in usual.named and dtype == "u64" and not op.id.endswith("bits"):
        extra = {"impl": "threefry2x64"}  # keys of 64-bit words
    function = op.function(op.workload(dtypes=_typed(op, dtype), **extra))
    return [p.buffer.dtype for p in function.params if p.role != "in"]


def _typed(op: Operator, dtype: str) -> tuple[str, ...]:
    """The types of the default workload with one that the operator takes put in.

    All arrays of the type that it stands for have it; indices and conditions do not.
    """
    usual = op.workload().dtypes
    replaced = next((name for name in reversed(usual) if name in op.dtypes), usual[0])
    return tuple(dtype if name == replaced else name for name in usual)
