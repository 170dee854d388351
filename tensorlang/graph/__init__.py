"""The operator graph: programs of operators that are checked before there is data.

from tensorlang import graph
from tensorlang.ops import nn

x = graph.input(graph.TensorSpec(("batch", 784)))
w = graph.input((10, 784), "w")
program = graph.Graph([x, w], nn.softmax(nn.dense(x, w)))
print(program)
y = program(images, weights)             # arrays: planned memory, bound kernels
"""

from tensorlang.graph.forms import (
    Function,
    Ref,
    cond,
    function,
    let,
    loop,
    read,
    ref,
    while_loop,
    write,
)
from tensorlang.graph.linearity import check_keys
from tensorlang.graph.program import Graph, input, key, trace
from tensorlang.graph.rewriting import Rewriter
from tensorlang.graph.specs import Dim, KeySpec, TensorSpec
from tensorlang.graph.threading import refs_of, thread
from tensorlang.graph.values import Key, Node, Tensor, Value, Weight, constant

__all__ = [
    "Dim",
    "Function",
    "Graph",
    "Key",
    "KeySpec",
    "Node",
    "Ref",
    "Rewriter",
    "Tensor",
    "TensorSpec",
    "Value",
    "Weight",
    "check_keys",
    "cond",
    "constant",
    "function",
    "input",
    "key",
    "let",
    "loop",
    "read",
    "ref",
    "refs_of",
    "thread",
    "trace",
    "while_loop",
    "write",
]
