"""Parse programs from text: `str(graph.parse(str(program))) == str(program)`.

The text lacks, and parsed programs therefore lack: Python source lines, layer paths,
and initial values of weights and references. Text that omits something cannot be
parsed: constants of more than 64 elements, custom gradients of functions, and
attributes other than numbers, strings, sizes and tuples of these. Operators are looked
up by name among the registered ones; nothing is imported, compiled or evaluated.
"""

from __future__ import annotations

import inspect
from typing import Final, NoReturn

from tensorlang.errors import TensorlangError
from tensorlang.graph.applying import apply
from tensorlang.graph.forms import CALL, Function
from tensorlang.graph.networks.leaves import Weight, constant
from tensorlang.graph.program import Graph, input
from tensorlang.graph.references import Ref
from tensorlang.graph.scopes import current, entered
from tensorlang.graph.specs import KeySpec
from tensorlang.graph.text.parsing_forms import HEADS, spec_of
from tensorlang.graph.text.reading import Reader, located
from tensorlang.graph.text.tokens import Token, unquoted
from tensorlang.graph.values import (
    ELEMENT,
    REPLAYING,
    Argument,
    Named,
    Node,
    Value,
    make,
)
from tensorlang.ops.registry import find

_KINDS: Final = ("function", "checkpoint", "custom")


def parse(text: str) -> Graph:
    """Parse a program.

    Raises:
        ParseError: too long, too deep or malformed; gives the line.
        GraphError, KeyReuseError: the program is invalid.
    """
    return Parser(text).whole()


class Parser(Reader):
    """Parses programs; functions and references are named globally in the text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.functions: dict[str, Graph] = {}
        self.refs: dict[str, Ref] = {}

    def whole(self) -> Graph:
        """The last program of the text, which uses the others."""
        while self.here.text in ("weight", "ref", *_KINDS):
            if self.take("weight"):
                self._weight()
            elif self.take("ref"):
                self._ref()
            else:
                self._function()
        self.expect("graph")
        made = self._program(self.word("a name").text)
        if self.here.kind != "end":
            raise self.here.wrong(f"{self.here.text!r} follows the program")
        return made

    def _weight(self) -> None:
        token = self.next()
        if token.kind != "weight":
            raise token.wrong(f"expected a weight such as @0.bias, not {token.text!r}")
        self.expect(":")
        spec = self.spec()
        if isinstance(spec, KeySpec):
            raise token.wrong("a weight is a tensor, not a key")
        path = unquoted(token) if '"' in token.text else token.text[1:]
        made = Weight(spec, path, trainable=not self.take("fixed"))
        self._define(token, made)

    def _ref(self) -> None:
        token = self.word("a name")
        initial = self.argument() if self.take("=") else None
        if initial is None:
            self.expect(":")
            initial = self.spec()
        if token.text in self.refs:
            raise token.wrong(f"{token.text} is already defined")
        self.refs[token.text] = Ref(initial, token.text)

    def _function(self) -> None:
        kind = self.next()
        if kind.text == "custom":
            raise kind.wrong(
                "a custom gradient is a Python function, which text cannot express"
            )
        if kind.text == "checkpoint":
            self.expect("function")
        token = self.word("a name")
        if token.text in self.functions:
            raise token.wrong(f"{token.text} is already defined")
        made = self._program(token.text)
        own = _written(made)
        own.checkpoint = kind.text == "checkpoint"
        made.function = own
        self.functions[token.text] = made

    def _program(self, name: str) -> Graph:
        """Parameters, results, and a body in braces."""
        around = dict(self.values)
        with entered(name) as scope:
            open_ = self.expect("(")
            inputs, _ = self.several(")", self._parameter)
            self.expect("->")
            several = self.take("(")
            specs = self.several(")", self.spec)[0] if several else [self.spec()]
            self.expect("{")
            outputs, single = self._body()
        self.values = around
        told = [value.spec for value in outputs]
        if told != specs or single == several:
            given = ", ".join(map(str, told))
            raise open_.wrong(f"{name} gives ({given}), not what its head declares")
        with located(open_):
            return Graph(
                inputs,
                outputs,
                name=name,
                effects=scope.effects,
                scope=scope,
                single=single,
            )

    def _parameter(self) -> Value:
        token = self.word("a name")
        self.expect(":")
        made: Value = input(self.spec(), token.text)
        self._define(token, made)
        return made

    def _define(self, token: Token, value: Value) -> None:
        if token.text in self.values:
            raise token.wrong(f"{token.text} is already defined")
        self.values[token.text] = value

    # ----------------------------------------------------------------- lines

    def _body(self) -> tuple[list[Value], bool]:
        """Nodes up to `return`: the outputs, and whether there is a single one."""
        while not self.take("return"):
            if self.take("ref"):
                self._ref()
            elif self.here.text in _KINDS:
                self._function()
            else:
                self._line()
        several = self.here.text == "("
        made = self.argument()
        self.expect("}")
        outputs = list(made) if several else [made]
        return [constant(value) for value in outputs], not several

    def _line(self) -> None:
        """A node, with names for its results."""
        begin, names = self.at, []
        while self.here.kind in ("value", "word"):
            names.append(self.next())
            if self.take("="):
                break
            if not self.take(","):
                self.at, names = begin, []
                break
        token = self.here
        with located(token):
            node = self._node()
        if len(node.results) != len(names):
            raise token.wrong(
                f"{node.id} gives {len(node.results)} results, not {len(names)}"
            )
        for name, value in zip(names, node.results, strict=True):
            if name.kind == "word":
                value.name = name.text
            self._define(name, value)

    def _node(self) -> Node:
        replay = self.take("replay")
        token = self.here
        if token.text in self.values or token.kind in ("value", "weight"):
            node = self._element()
        elif token.text in HEADS:
            self.next()
            node = HEADS[token.text](self)
        else:
            node = self._applied(self.word("an operator"), replay=replay)
        node.replay = replay
        lasting = any(graph.stateful for graph in node.graphs)
        scope = current()
        if scope is not None and (lasting or node.id in ("read", "write")):
            scope.effects.append(node)
        return node

    def _applied(self, token: Token, *, replay: bool) -> Node:
        """A call of a function or an operator."""
        args, kwargs = self.arguments()
        graph = self.functions.get(token.text)
        if graph is not None:
            specs = [value.spec for value in graph.inputs]
            if [spec_of(arg) for arg in args] != specs or kwargs:
                raise token.wrong(f"{token.text} takes {', '.join(map(str, specs))}")
            outputs = [value.spec for value in graph.outputs]
            return make(CALL, args, {}, outputs, graphs=[graph])
        op, held = find(token.text), REPLAYING.set(replay)
        try:
            inspect.signature(op).bind(*args, **kwargs)
            made = apply(op, tuple(args), kwargs)
        except TensorlangError:
            raise
        except Exception as problem:
            # arguments that no caller would write may fail in any way
            raise token.wrong(f"{token.text}: {problem}") from problem
        finally:
            REPLAYING.reset(held)
        first = made[0] if isinstance(made, tuple) else made
        node: Node = first.node
        return node

    def arguments(self) -> tuple[list[Argument], Named]:
        """Parenthesised arguments, keywords last; ParseError if malformed."""
        self.expect("(")
        named: Named = {}

        def one() -> Argument:
            token = self.here
            if token.kind == "word" and self.words[self.at + 1].text == "=":
                self.at += 2
                if token.text in named:
                    raise token.wrong(f"{token.text} is given more than once")
                named[token.text] = self.argument()
                return named
            if named:
                raise token.wrong("a positional argument follows keyword arguments")
            return self.argument()

        found, _ = self.several(")", one)
        return [each for each in found if each is not named], named

    def _element(self) -> Node:
        """One key of a batch."""
        token = self.here
        key = self.argument()
        self.expect("[")
        at = self.argument()
        self.expect("]")
        size = key.shape[0] if key.shape else 0
        if not isinstance(key.spec, KeySpec) or not isinstance(at, int):
            raise token.wrong("keys of a batch are indexed by number")
        if not isinstance(size, int) or not 0 <= at < size:
            raise token.wrong(f"{token.text} has no element {at}")
        return make(ELEMENT, (key, at), {}, [KeySpec(key.shape[1:], key.spec.impl)])

    def inside(self, name: str) -> Graph:
        """A branch or loop body: parameters and nodes."""
        around, begin = dict(self.values), self.here
        with entered(name) as scope:
            inputs: list[Value] = []
            if self.take("take"):
                self.expect("(")
                inputs = self.several(")", self._parameter)[0]
            outputs, single = self._body()
        self.values = around
        with located(begin):
            return Graph(
                inputs,
                outputs,
                name=name,
                effects=scope.effects,
                scope=scope,
                single=single,
            )


def _written(graph: Graph) -> Function:
    """A function with a parsed program as its body."""

    def body(*_: object) -> NoReturn:
        raise NotImplementedError(f"{graph.name} was read from text")

    body.__name__ = graph.name
    return Function(body)
