"""Parsers of the forms: names, references, branches, loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tensorlang.graph.differentiation.autodiff import FOR_GRAD, WHILE_GRAD
from tensorlang.graph.forms import FOR, IF, LET, WHILE
from tensorlang.graph.references import READ, WRITE, Ref
from tensorlang.graph.specs import Spec
from tensorlang.graph.values import ZEROS, Node, Value, make

if TYPE_CHECKING:
    from tensorlang.graph.program import Graph
    from tensorlang.graph.text.parsing import Parser

# the names of a form's nested programs
_INSIDE: Final = {
    "if": ("then", "else"),
    "for": ("body",),
    "while": ("while", "body"),
    "for_grad": ("body", "back"),
    "while_grad": ("while", "body", "back"),
}
_FORMS: Final = {form.id: form for form in (IF, FOR, WHILE, FOR_GRAD, WHILE_GRAD)}


def _let(parser: Parser) -> Node:
    args, _ = parser.arguments()
    if len(args) != 1 or not isinstance(args[0], Value):
        raise parser.here.wrong("let takes one value")
    return make(LET, args, {}, [args[0].spec])


def _zeros(parser: Parser) -> Node:
    spec = parser.spec()
    parser.arguments()
    return make(ZEROS, (), {}, [spec])


def _read(parser: Parser) -> Node:
    place = _place(parser)
    parser.arguments()
    return make(READ, (), {"ref": place}, [place.spec])


def _write(parser: Parser) -> Node:
    place = _place(parser)
    args, _ = parser.arguments()
    if [spec_of(arg) for arg in args] != [place.spec]:
        raise parser.here.wrong(f"{place.name} holds {place.spec}")
    return make(WRITE, args, {"ref": place}, [])


def _place(parser: Parser) -> Ref:
    token = parser.word("a reference")
    if token.text not in parser.refs:
        raise token.wrong(f"{token.text} is not a reference")
    return parser.refs[token.text]


def _form(parser: Parser, id: str) -> Node:
    """A form with nested programs."""
    token = parser.here
    args, kwargs = parser.arguments()
    graphs: list[Graph] = []
    for name in _INSIDE[id]:
        if graphs:
            parser.word("the name of the nested program")
        parser.expect("{")
        graphs.append(parser.inside(name))
    specs = _results(id, args, graphs)
    if specs is None:
        raise token.wrong(f"the programs of this {id} do not fit its arguments")
    return make(_FORMS[id], args, kwargs, specs, graphs=graphs)


def spec_of(value: object) -> Spec | None:
    """The spec of a value; None for an attribute."""
    return value.spec if isinstance(value, Value) else None


def _results(
    id: str, args: Sequence[object], graphs: Sequence[Graph]
) -> Sequence[Spec] | None:
    """The specs of a form's results; None if its programs do not fit it."""
    given = [spec_of(arg) for arg in args]
    gives = [[value.spec for value in graph.outputs] for graph in graphs]
    takes = [[value.spec for value in graph.inputs] for graph in graphs]
    if id == "if":
        fits = gives[0] == gives[1] and not takes[0] and not takes[1]
        return gives[0] if fits and len(args) == 1 else None
    if id in ("for", "while"):
        ahead = id == "for"
        fits = gives[-1] == given and takes[-1][ahead:] == given
        return gives[-1] if fits and (ahead or takes[0] == given) else None
    return gives[-1] if takes[-1][: len(takes[-2])] == takes[-2] else None


HEADS: Final[dict[str, Callable[[Parser], Node]]] = {
    "let": _let,
    "zeros": _zeros,
    "read": _read,
    "write": _write,
    **{id: partial(_form, id=id) for id in _INSIDE},
}
