"""Declarations of an operator about its inputs: sizes, indices, samples.

    @operator("my.blur", sizes="h >= 5 and w >= 5")
    def blur(x):
        h, w = x.shape

Sizes are named as in the definition (`h, w = x.shape`, `n = x.shape[0]`), or by array
and dimension: `x.0`. See `tensorlang.ops.spec.definition.operator`.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import OperatorError, ShapeError
from tensorlang.frozen import frozen
from tensorlang.ops.spec.formulas import Formula, formula, nearest

if TYPE_CHECKING:
    from tensorlang.ops.spec.signature import Spec
    from tensorlang.workload import Workload

Array: TypeAlias = "np.ndarray[Any, np.dtype]"
_MODERATE: Final = 16.0


@frozen
class Declarations:
    """The declarations of an operator about its inputs; none by default.

    Attributes:
        arrays: The names of its arrays.
        called: Maps the definition's names of sizes to array and dimension: `h` to
            `x.0`.
        sizes: A condition that the sizes of every workload must meet.
        indices: For integer arrays, the exclusive upper bound of elements, from 0.
        samples: Maps arbitrary inputs to valid ones.
    """

    arrays: tuple[str, ...] = ()
    called: Mapping[str, str] = field(default_factory=dict)
    sizes: Formula | None = None
    indices: Mapping[str, Formula] = field(default_factory=dict)
    samples: Callable[..., Any] | None = None

    @property
    def stated(self) -> frozenset[str]:
        """The dimensions whose sizes the condition names, such as `x.0`."""
        names = self.sizes.names if self.sizes else ()
        return frozenset(self.called.get(name, name) for name in names)

    def check(self, workload: Workload) -> None:
        """Refuse a workload whose sizes do not meet the condition.

        Raises:
            ShapeError: they do not; the message has the condition and the sizes.
        """
        if self.sizes is None:
            return
        values = self.values(workload)
        missing = [name for name in self.sizes.names if name not in values]
        if missing or not self.sizes.value(values):
            found = (
                f"{name} is {values.get(name, 'not given')}"
                for name in self.sizes.names
            )
            raise ShapeError(
                f"{workload.operator} needs {self.sizes.text}; {', '.join(found)}"
            )

    def bounds(self, workload: Workload) -> dict[str, int]:
        """The exclusive upper bound of the elements of each declared array."""
        values = self.values(workload) if self.indices else {}
        return {name: int(f.value(values)) for name, f in self.indices.items()}

    def fitted(self, workload: Workload) -> Workload:
        """The workload with the nearest sizes that meet the condition, if any do."""
        for condition in self.sizes.conjuncts if self.sizes else ():
            values = self.values(workload)
            if not condition.value(values):
                sizes = [n for n in condition.names if n in self.called or "." in n]
                for name, size in nearest(condition, values, sizes):
                    workload = self._with(workload, name, size)
                    break
        return workload

    def projected(self, workload: Workload, arrays: list[Array]) -> list[Array]:
        """The inputs as changed by `samples`; OperatorError if these are others."""
        if self.samples is None:
            return arrays
        spare = [array.copy() for array in arrays]
        made = self.samples(*spare, **workload.named)
        found = spare if made is None else made
        found = list(found) if isinstance(found, (tuple, list)) else [found]
        facts = [(np.shape(a), np.asarray(a).dtype) for a in found]
        if facts != [(a.shape, a.dtype) for a in arrays]:
            raise OperatorError(
                f"{workload.operator}: samples= gives "
                f"{', '.join(f'{d}{list(s)}' for s, d in facts) or 'nothing'}; for "
                f"{workload} it gives arrays of these shapes and types"
            )
        return found

    def values(self, workload: Workload) -> dict[str, Any]:
        """What formulas may name: sizes, and attributes."""
        found: dict[str, Any] = dict(workload.named)
        for name, shape in zip(self.arrays, workload.shapes, strict=False):
            found |= {f"{name}.{n}": extent for n, extent in enumerate(shape)}
            found |= {f"{name}.{n - len(shape)}": e for n, e in enumerate(shape)}
        known = self.called.items()
        return found | {name: found[at] for name, at in known if at in found}

    def _with(self, workload: Workload, name: str, size: int) -> Workload:
        array, _, dimension = self.called.get(name, name).partition(".")
        shapes = [list(shape) for shape in workload.shapes]
        if dimension:
            shapes[self.arrays.index(array)][int(dimension)] = size
        return workload.with_shapes(*map(tuple, shapes))


NOTHING: Final = Declarations()
# source text of `x.shape[0]` and `x.shape`, possibly converted by int() or .value
_ONE: Final = re.compile(r"(?:int\()?(\w+)\.shape\[(-?\d+)\](?:\.value)?\)?")
_ALL: Final = re.compile(
    r"(?:map\(int, |[\[(](?:int\()?(\w+)(?:\.value)?\)? for \1 in )?(\w+)\.shape[\])]?"
)


def moderate(*arrays: Array) -> None:
    """Bring floats to a moderate magnitude, for `samples`; infinities stay."""
    for array in arrays:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            wide = array.astype(np.float64)
            near = np.clip(wide, -_MODERATE, _MODERATE)
            array[...] = np.where(np.isinf(wide), wide, near)


def declarations(  # noqa: PLR0917 - as the decorator takes them
    id: str,
    definition: Callable[..., object],
    spec: Spec,
    sizes: str,
    indices: Mapping[str, str | int],
    samples: Callable[..., object] | None,
) -> Declarations:
    """A definition's declarations; OperatorError if a formula is invalid."""
    arrays = tuple(spec.arrays)
    called = dict(_called(definition, arrays)) if sizes or indices else {}
    names = (*called, *spec.attributes)
    unknown = [name for name in indices if name not in arrays]
    if unknown:
        raise OperatorError(
            f"{id}: indices= names {', '.join(unknown)}; its arrays are "
            f"{', '.join(arrays) or 'none'}"
        )
    return Declarations(
        arrays,
        called,
        formula(f"{id}: sizes", sizes, names, arrays) if sizes else None,
        {
            name: formula(f"{id}: indices of {name}", str(text), names, arrays)
            for name, text in indices.items()
        },
        samples,
    )


def _called(
    definition: Callable[..., object], arrays: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """The names of sizes in a definition: `h, w = x.shape`, `n = x.shape[0].value`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(definition)))
    except (OSError, TypeError, SyntaxError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], ast.unparse(node.value)
        one, all_of = _ONE.fullmatch(value), _ALL.fullmatch(value)
        if one and one[1] in arrays:
            yield ast.unparse(target), f"{one[1]}.{one[2]}"
        elif all_of and all_of[2] in arrays and isinstance(target, ast.Tuple):
            for number, name in enumerate(target.elts):
                yield ast.unparse(name), f"{all_of[2]}.{number}"
