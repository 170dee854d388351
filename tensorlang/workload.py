"""A workload: one operator on given shapes and dtypes, as a value.

Records are filed by workload, and tuner and schedules work on them: frozen, hashable,
and serializable to JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from tensorlang.errors import RecordError
from tensorlang.frozen import frozen

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,127}")
_DTYPE: Final = re.compile(r"[a-z][a-z0-9]{1,7}")
_LARGEST: Final = 1 << 48
_MOST_THREADS: Final = 1 << 12

Attribute: TypeAlias = bool | int | float | str | tuple[int | None, ...] | None


@frozen
class Workload:
    """An operator's id, its arrays' shapes and dtypes, its attributes, the threads.

    Args:
        operator: The canonical id, such as `random.bits`.
        shapes: One shape per array argument; for a random operator, the result's.
        dtypes: Names such as `f32` or `u32`, one per shape.
        attributes: Pairs (name, value) sorted by name; see `attributes_of`.
        threads: Threads of the team, 0 to let the target decide.
    """

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    threads: int = 0

    @property
    def named(self) -> dict[str, Attribute]:
        """The attributes by name."""
        return dict(self.attributes)

    def with_shapes(self, *shapes: tuple[int, ...]) -> Workload:
        """The same operator on other shapes."""
        return Workload(
            self.operator, shapes, self.dtypes, self.attributes, self.threads
        )

    def __str__(self) -> str:
        arrays = ", ".join(
            f"{dtype}[{', '.join(map(str, shape))}]"
            for dtype, shape in zip(self.dtypes, self.shapes, strict=False)
        )
        rest = "".join(f", {name}={value}" for name, value in self.attributes)
        return f"{self.operator}({arrays}{rest})"

    def to_json(self) -> dict[str, object]:
        """Plain JSON data; `from_json` reads it back to an equal workload."""
        return {
            "operator": self.operator,
            "shapes": [list(shape) for shape in self.shapes],
            "dtypes": list(self.dtypes),
            "attributes": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in self.attributes
            },
            "threads": self.threads,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Workload:
        """The workload that `to_json` wrote.

        Raises:
            RecordError: a field is missing or of another kind.
        """
        try:
            return cls(
                _text(data["operator"], _NAME),
                tuple(tuple(map(_extent, shape)) for shape in data["shapes"]),
                tuple(_text(name, _DTYPE) for name in data["dtypes"]),
                attributes_of(data["attributes"]),
                _up_to(data["threads"], _MOST_THREADS),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise RecordError(
                f"no workload can be read from {str(data)[:200]}: {problem!r}"
            ) from problem


def attributes_of(values: Mapping[str, object]) -> tuple[tuple[str, Attribute], ...]:
    """Attributes as a workload holds them: sorted, lists as tuples.

    Raises:
        TypeError: a value is none of bool, int, float, str, None, whole numbers.
    """
    return tuple((name, _attribute(values[name])) for name in sorted(values))


def _attribute(value: object) -> Attribute:
    if isinstance(value, (list, tuple)):
        return tuple(each if each is None else _whole(each) for each in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{value!r} is not an attribute of a workload")


def _text(value: object, form: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise TypeError(f"{str(value)[:80]!r} is not a name of an operator or type")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _extent(value: object) -> int:
    return _up_to(value, _LARGEST)


def _up_to(value: object, most: int) -> int:
    number = _whole(value)
    if not 0 <= number <= most:
        raise ValueError(f"{str(value)[:80]} is not from 0 to {most}")
    return number
