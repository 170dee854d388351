"""A node of an ONNX file, with what is known of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tensorlang.errors import GraphError
from tensorlang.graph.leaves import Weight
from tensorlang.graph.values import Value
from tensorlang.onnx.files import library

if TYPE_CHECKING:
    from tensorlang.onnx.programs import Program


class Call:
    """A node of a file, with what is known of its inputs.

    Attributes:
        kind: Its operator's name in ONNX.
        inputs: Symbolic values; arrays where they are constants; None where left out.
        names: What the inputs are called.
        outputs: The names of what it gives.
        given: Its attributes.
        place: How a message calls it.
        program: The program that it is in.
        around: All that has a name where it stands.
    """

    inputs: list[Any]

    def __init__(self, program: Program, node: Any, around: Mapping[str, Any]) -> None:
        self.program, self.kind = program, str(node.op_type)
        self.around = around
        self.names = tuple(node.input)
        self.inputs = [around[name] for name in self.names]
        self.outputs = tuple(node.output)
        helper = library().helper
        self.given: dict[str, Any] = {}
        for attribute in node.attribute:
            value = helper.get_attribute_value(attribute)
            text = isinstance(value, bytes)
            self.given[attribute.name] = value.decode() if text else value
        self.place = f"{node.op_type} {node.name!r}" if node.name else node.op_type

    def input(self, at: int) -> Any:
        """An input; None where it is left out."""
        return self.inputs[at] if at < len(self.inputs) else None

    def known(self, at: int, what: str) -> Any:
        """An input that has to be constant, such as a shape.

        Raises:
            GraphError: it is computed from data.
        """
        value = self.input(at)
        if isinstance(value, Weight):
            value = self.program.arrays[value.path]
        if isinstance(value, Value):
            raise self.refuse(f"{what} depends on data; we need a constant")
        return value

    def refuse(self, why: str) -> GraphError:
        """An error that says what of it we have not."""
        return GraphError(f"{self.program.name}: {self.place}: {why}")


Reader: TypeAlias = Callable[[Call], Any]
