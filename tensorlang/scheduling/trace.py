"""The steps of a schedule: printed as Python calls, serialized as JSON, replayed.

    s.split("i", [None, 32])
    s.reorder("i_0", "j", "i_1")

A step is the name of a primitive and its arguments: numbers, strings, lists of them;
expressions are stored as text. Names returned by steps are deterministic, so they need
not be stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cache, singledispatch
from inspect import Signature, signature

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.nodes import Expr, Function, IndexMap
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.arguments import misfits
from tensorlang.scheduling.primitives import PRIMITIVES, Primitive


@singledispatch
def portable(value: object) -> object:
    """An argument in serializable form: numbers, strings, lists; trees as text.

    Raises:
        ScheduleError: the value has no such form.
    """
    raise ScheduleError(
        f"{value!r} cannot be kept in a trace; give numbers, strings, lists of them, "
        "or an expression"
    )


@portable.register(type(None))
@portable.register(bool)
@portable.register(int)
@portable.register(float)
@portable.register(str)
def _(value: object) -> object:
    return value


@portable.register(list)
@portable.register(tuple)
def _(value: Sequence[object]) -> object:
    return [portable(item) for item in value]


@portable.register(Expr)
@portable.register(IndexMap)
def _(value: Expr | IndexMap) -> object:
    return show(value)


@frozen
class Step:
    """One call of a primitive."""

    name: str
    args: tuple[object, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)

    @staticmethod
    def of(name: str, args: Sequence[object], options: Mapping[str, object]) -> Step:
        """A step in short: options are those arguments that are not the default."""
        if (primitive := PRIMITIVES.get(name)) is not None:
            with suppress(TypeError):  # which `apply` reports
                args, options = _short(_form(primitive), args, options)
        kept = {option: portable(value) for option, value in options.items()}
        return Step(name, tuple(map(portable, args)), kept)

    def __str__(self) -> str:
        given = [_spelled(arg) for arg in self.args]
        given += [f"{name}={_spelled(arg)}" for name, arg in self.options.items()]
        return f"s.{self.name}({', '.join(given)})"

    def apply(self, func: Function) -> tuple[Function, object]:
        """The function after this step, and the names that the primitive returns.

        Raises:
            ScheduleError: the step is not legal there, or its arguments do not fit.
        """
        primitive = PRIMITIVES.get(self.name)
        if primitive is None:
            known = ", ".join(sorted(PRIMITIVES))
            raise ScheduleError(f"{self}: there is no such primitive; these: {known}")
        form = _form(primitive)
        try:
            given = form.bind(func, *self.args, **self.options)
        except TypeError as error:
            raise ScheduleError(f"{self}: {error}") from None
        for complaint in misfits(form, given):
            raise ScheduleError(f"{self}: {complaint}")
        result = primitive(func, *self.args, **self.options)
        return (result, None) if isinstance(result, Function) else result


@cache
def _form(primitive: Primitive) -> Signature:
    return signature(primitive)


def _short(
    form: Signature, args: Sequence[object], options: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """The arguments without a default, and the others that are not the default."""
    placed: list[object] = []
    others = {}
    for name, value in form.bind(None, *args, **options).arguments.items():
        parameter = form.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            placed += value
        elif parameter.default is parameter.empty:
            placed.append(value)
        elif value != parameter.default:
            others[name] = value
    return placed[1:], others


def _spelled(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_spelled, value))}]"
    return repr(value)


@frozen
class Trace:
    """The steps of a schedule, in order; prints as the calls that reproduce it."""

    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def then(self, step: Step) -> Trace:
        """This trace with one more step."""
        return Trace((*self.steps, step))

    def replay(self, func: Function) -> Function:
        """The function after all steps.

        Raises:
            ScheduleError: a step is not legal for this function.
        """
        for step in self.steps:
            func, _ = step.apply(func)
        return func

    def to_json(self) -> list[list[object]]:
        """The steps as JSON: `[["split", ["i", [null, 32]], {}], ...]`."""
        return [[s.name, list(s.args), dict(s.options)] for s in self.steps]

    @classmethod
    def from_json(cls, steps: Iterable[object]) -> Trace:
        """Restore a trace from `to_json`; nothing in it is evaluated.

        Raises:
            ScheduleError: a step is no `[primitive, arguments, options]`.
        """
        return cls(tuple(_step(item) for item in steps))


def _step(item: object) -> Step:
    match item:
        case [str() as name, [*args], {**options}] if name in PRIMITIVES:
            named = {str(key): portable(value) for key, value in options.items()}
            return Step(name, tuple(portable(arg) for arg in args), named)
        case [str() as name, *_] if name not in PRIMITIVES:
            raise ScheduleError(f"a step of the trace names no primitive: {name!r}")
    raise ScheduleError(
        f"a step of the trace is [primitive, [arguments], {{options}}], not {item!r}"
    )
