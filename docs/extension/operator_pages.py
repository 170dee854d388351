"""Generated parts of the operators' pages."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import chain, repeat
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import jinja2
import roofline

from tensorlang.errors import DTypeError, OperatorError
from tensorlang.ir import show
from tensorlang.ir.cost import cost
from tensorlang.ops import (
    Operator,
    find,
    operators,
)
from tensorlang.ops.kernels import building
from tensorlang.ops.random.draw import Draw
from tensorlang.scheduling import Knobs
from tensorlang.targets import Target
from tensorlang.tuner.correctness.tolerance import reassociation
from tensorlang.workload import Workload, attributes_of

# keeps pages independent of the build machine
TARGET: Final = Target(device="a CPU with vectors of 256 bits")


def operator(fullname: str) -> Operator | None:
    """The operator at `tensorlang.ops.<id>`; None if it is something else."""
    try:
        return find(fullname.removeprefix("tensorlang.ops."))
    except OperatorError:
        return None


def public(package: str) -> list[str]:
    """The public names of a package: its operators, functions and classes."""
    module = import_module(package)
    ids = {op.id.rpartition(".")[2] for op in operators()}
    values = {n: getattr(module, n, None) for n in sorted({*ids, *dir(module)})}
    return [
        name
        for name, value in values.items()
        if name[0] != "_"
        and (isinstance(value, Operator) or _home(value).startswith(f"{package}."))
    ]


def _home(value: object) -> str:
    return "" if isinstance(value, ModuleType) else getattr(value, "__module__", "")


def usual(op: Operator) -> Workload:
    """The operator's representative workload."""
    return op.default or op.workload()


def tolerance(op: Operator, algorithm: str) -> str:
    """The permitted error of an algorithm against the reference."""
    if allowed := op.algorithms[algorithm].tolerance:
        return f"{allowed:g}"
    if reassociation(op.function(usual(op)), op.sizes(usual(op))):
        return "sums in any order: (16 + 4 sqrt(terms)) machine epsilons"
    return "exact: equal bits"


def costs(op: Operator) -> dict[str, str]:
    """The cost of one call, as expressions in the symbolic sizes."""
    counted = cost(op.function(usual(op)))
    counts = {
        "floating-point operations": counted.float_ops,
        "integer operations": counted.integer_ops,
        "bytes read": counted.bytes_read,
        "bytes written": counted.bytes_written,
    }
    return {name: show(count) for name, count in counts.items()}


def knobs(op: Operator, algorithm: str) -> Knobs | str:
    """The knobs of an algorithm's schedule, or why there are none."""
    if not op.algorithms[algorithm].serves(usual(op)):
        return "does not support the default workload."
    if not building.schedules(op, algorithm, TARGET):
        return "has no schedule of its own and no knobs."
    found = Knobs()
    building.schedule(op, usual(op), TARGET, algorithm, found)
    return found if found.domains else "has no knobs."


@cache
def conversions(op: Operator) -> tuple[str, ...]:
    """The dtypes that an operator accepts, each with its result dtype."""
    return tuple(_conversion(op, dtype) for dtype in op.dtypes)


def _conversion(op: Operator, dtype: str) -> str:
    try:
        results = ", ".join(str(result) for result in _results(op, dtype))
    except DTypeError:  # with the representative attributes
        return f"{dtype} with other attributes"
    return dtype if results == dtype else f"{dtype} to {results}"


def _results(op: Operator, dtype: str) -> list[Any]:
    if isinstance(op, Draw):
        function = op.function(op.workload(dtypes=dtype))
        return [p.buffer.dtype for p in function.params if p.role != "in"]
    default = usual(op)
    extra: dict[str, Any] = {}
    if "impl" in default.named and dtype == "u64":
        extra = {"impl": "threefry2x64"}  # keys of 64-bit words
    # only arrays of the operator's main dtype vary, not indices and conditions
    usual_type = next((t for t in reversed(default.dtypes) if t in op.dtypes), None)
    replaced = usual_type or default.dtypes[0]
    attributes = attributes_of(default.named | extra)
    slots = chain(op.spec.slots(default.named), repeat(""))
    dtypes = tuple(
        dtype if t == replaced and _admits(op, slot, dtype) else t
        for slot, t in zip(slots, default.dtypes, strict=False)
    )
    function = op.function(replace(default, dtypes=dtypes, attributes=attributes))
    return [p.buffer.dtype for p in function.params if p.role != "in"]


def _admits(op: Operator, slot: str, dtype: str) -> bool:
    """Whether an array may be of this type, which others of the operator have."""
    declared = op.spec.arrays.get(slot)
    return declared is None or not declared.dtypes or dtype in declared.dtypes


def element_types() -> str:
    """A Markdown table of the argument and result dtypes of each operator."""
    rows = [
        f"| `{op.id}` | {'; '.join(conversions(op))} |"
        for op in operators()
        if op.in_library
    ]
    return "\n".join(["| operator | argument and result types |", "|---|---|", *rows])


_TEMPLATES: Final = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "templates"),
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701 - the output is not HTML
)
_TEMPLATES.globals |= {
    "conversions": conversions,
    "costs": costs,
    "knobs": knobs,
    "measured": roofline.measured,
    "show": show,
    "target": TARGET,
    "tolerance": tolerance,
    "usual": usual,
}


def facts(name: str) -> str:
    """The reStructuredText below an operator's docstring."""
    return _TEMPLATES.get_template("facts.rst").render(op=find(name))
