"""The options of the decorators that make operators: their names and types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from tensorlang.errors import OperatorError
from tensorlang.ops.operator import Operator

Made = TypeVar("Made")

_FUNCTIONS: Final = (
    "samples", "host", "faults", "variants", "derive", "view", "prefers", "shorthand",
)  # fmt: skip
_TYPES: Final[Mapping[str, tuple[Any, str]]] = {
    **dict.fromkeys(("family", "scheduled_as", "sizes", "onnx"), (str, "a text")),
    **dict.fromkeys(("indices", "gradient", "meanings"), (Mapping, "a dictionary")),
    **dict.fromkeys(_FUNCTIONS, (Callable, "a function")),
    "aliases": ((tuple, list), "a tuple of names"),
    "tolerance": ((int, float), "a number"),
    **dict.fromkeys(("whole", "promotes"), (bool, "True or False")),
    "parameters_of": (Operator, "an operator"),
}


def decorator(
    kind: type[Made], id: str, options: Mapping[str, object]
) -> Callable[[Callable[..., Any]], Made]:
    """The decorator that makes an operator of a kind from a definition.

    Args:
        kind: Its class; options are keyword parameters of the constructors.
        id: The operator's id.
        options: The options by name.

    Raises:
        OperatorError: the id does not consist of identifiers joined by dots, or, from
            the decorator, there is no such option, or it is of a wrong type.
    """
    if callable(id):
        raise OperatorError(
            f"the decorator of {getattr(id, '__name__', id)!r:.80} takes the "
            "operator's name first, such as @operator('my.op')"
        )
    if not isinstance(id, str) or not all(
        part.isidentifier() for part in id.split(".")
    ):
        raise OperatorError(f"{id!r} is not a name such as 'my.op'")

    def make(body: Callable[..., object]) -> Made:
        if not callable(body) or isinstance(body, type):
            raise OperatorError(f"{id}: a definition is a function, not {body!r:.80}")
        _check(id, kind, options)
        return kind(id, body, **options)  # type: ignore[call-arg]

    return make


def _check(id: str, kind: type, options: Mapping[str, object]) -> None:
    """Refuse options that operators of a kind do not have, or of a wrong type."""
    known = [*dict.fromkeys(_known(kind))]
    for name, value in options.items():
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise OperatorError(f"{id}: an operator has no option {name!r}{hint}")
        type_, says = _TYPES.get(name, (object, ""))
        if value is not None and not isinstance(value, type_):
            raise OperatorError(f"{id}: {name}= is {says}, not {value!r:.80}")


def _known(kind: type) -> Sequence[str]:
    """The keyword-only parameters of the constructors of a class and its bases."""
    held = (vars(base).get("__init__") for base in kind.__mro__)
    makers = [make for make in held if inspect.isfunction(make)]
    every = (p for make in makers for p in inspect.signature(make).parameters.values())
    return [p.name for p in every if p.kind is p.KEYWORD_ONLY]
