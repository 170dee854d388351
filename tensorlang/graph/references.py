"""References: mutable state that a function reads and writes in program order."""

from __future__ import annotations

import itertools
from typing import Final

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.networks.leaves import Data, constant
from tensorlang.graph.scopes import call_site, current, path
from tensorlang.graph.specs import KeySpec, Spec, TensorSpec
from tensorlang.graph.values import Form, Node, OpResult, Value, make
from tensorlang.ops.random.keys import Key as Concrete

READ: Final = Form("read")
WRITE: Final = Form("write")
_NUMBERS: Final = itertools.count()


class Ref:
    """Mutable state of a program; `tensorlang.graph.passes.threading` eliminates it.

    Attributes:
        name: Its name.
        spec: The spec of its content.
        initial: Its initial content: an array or a key, or None.
        value: Its initial content, if that is a value of a program.
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
    """A reference, for `graph.read` and `graph.write` in a function.

    Args:
        initial: Its initial content: data, only a spec, or a value of the program, in
            which case the reference is local to the function.
        name: Its name.
    """
    return Ref(initial, name)


def read(place: Ref) -> OpResult:
    """The last value written, in program order.

    Raises:
        GraphError: no function or branch is being traced.
    """
    return _effect(READ, place, (), (place.spec,)).results[0]


def write(place: Ref, value: Value | Data) -> None:
    """Write a value to a reference.

    Raises:
        GraphError: no function or branch is being traced.
        ShapeError: the value has another spec.
    """
    made = constant(value)
    if made.spec != place.spec:
        raise ShapeError(
            f"{call_site()}: {place.name} holds {place.spec} and cannot be set to "
            f"{made.spec}"
        )
    _effect(WRITE, place, (made,), ())


def _effect(
    form: Form, place: Ref, args: tuple[Value, ...], specs: tuple[Spec, ...]
) -> Node:
    scope = current()
    if scope is None:
        raise GraphError(
            f"{call_site()}: {form.id} of {place.name} outside of a function: order "
            "matters there, so write it in a graph.function or graph.trace"
        )
    node = make(form, args, {"ref": place}, specs, where=call_site(), path=path())
    scope.effects.append(node)
    return node
