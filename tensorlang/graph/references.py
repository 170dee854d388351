"""References: places that a function reads and writes, in the order of the program."""

from __future__ import annotations

import itertools
from typing import Final

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.leaves import Data, constant
from tensorlang.graph.scopes import current, outside, path
from tensorlang.graph.specs import KeySpec, Spec, TensorSpec
from tensorlang.graph.values import Form, Made, Node, Value, make
from tensorlang.ops.random.keys import Key as Concrete

READ: Final = Form("read")
WRITE: Final = Form("write")
_NUMBERS: Final = itertools.count()


class Ref:
    """A place that a program reads and writes; `tensorlang.graph.threading` removes it.

    Attributes:
        name: What it is called.
        spec: What it holds.
        initial: What it holds at first: an array or a key, or None.
        value: What it holds at first, where that is a value of a program.
    """

    def __init__(self, initial: Data | Spec, name: str = "") -> None:
        self.name = name or f"ref{next(_NUMBERS)}"
        self.value = initial if isinstance(initial, Value) else None
        self.initial: Data | None = None
        if self.value is not None:
            self.spec: Spec = self.value.spec
        elif isinstance(initial, (TensorSpec, KeySpec)):
            self.spec = initial
        elif isinstance(initial, Concrete):
            self.initial, self.spec = initial, KeySpec(initial.shape, initial.impl)
        else:
            self.initial = initial
            self.spec = constant(initial).spec

    def __repr__(self) -> str:
        return f"<ref {self.name}: {self.spec}>"


def ref(initial: Data | Spec, name: str = "") -> Ref:
    """A place that holds a value: `graph.read` and `graph.write` it in a function.

    Args:
        initial: What it holds at first: data, or only a spec of it; or a value of the
            program, and then the place belongs to the function.
        name: What it is called.
    """
    return Ref(initial, name)


def read(place: Ref) -> Made:
    """What was written last, by the order of the program.

    Raises:
        GraphError: no function or branch is being written.
    """
    return _effect(READ, place, (), (place.spec,)).results[0]


def write(place: Ref, value: Value | Data) -> None:
    """Put a value into a place.

    Raises:
        GraphError: no function or branch is being written.
        ShapeError: the value is of another spec.
    """
    made = constant(value)
    if made.spec != place.spec:
        raise ShapeError(
            f"{outside()}: {place.name} holds {place.spec}, and is given {made.spec}"
        )
    _effect(WRITE, place, (made,), ())


def _effect(
    form: Form, place: Ref, args: tuple[Value, ...], specs: tuple[Spec, ...]
) -> Node:
    scope = current()
    if scope is None:
        raise GraphError(
            f"{outside()}: {form.id} of {place.name} outside of a function: order "
            "matters there, so write it in a graph.function or graph.trace"
        )
    node = make(form, args, {"ref": place}, specs, where=outside(), path=path())
    scope.effects.append(node)
    return node
