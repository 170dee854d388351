"""Operator graphs: programs that are checked before there is data.

A program is built from symbolic tensors and called with arrays:

    from tensorlang import graph
    from tensorlang.ops import nn

    x = graph.input(graph.TensorSpec(("batch", 784)))
    w = graph.input((10, 784), "w")
    program = graph.Graph([x, w], nn.softmax(nn.dense(x, w)))
    print(program)
    y = program(images, weights)             # arrays: planned memory, bound kernels
"""

from tensorlang.graph.differentiation import gradient_rules as _rules  # noqa: F401 - rules
from tensorlang.graph.differentiation import scatter_rule as _scatter  # noqa: F401 - rules
from tensorlang.graph.differentiation import second_order as _second  # noqa: F401 - rules
from tensorlang.graph.differentiation.autodiff import gradients
from tensorlang.graph.differentiation.autodiff_forms import checkpoint
from tensorlang.graph.differentiation.gradients import gradient_of
from tensorlang.graph.execution.workloads import workloads
from tensorlang.graph.forms import Function, cond, function, let, loop, while_loop
from tensorlang.graph.networks.context import Context
from tensorlang.graph.networks.leaves import Weight, constant
from tensorlang.graph.networks.network import Network
from tensorlang.graph.networks.training import TrainingContext, TrainingProgram
from tensorlang.graph.passes.fusion import fuse
from tensorlang.graph.passes.linearity import check_keys
from tensorlang.graph.passes.optimisation import (
    fold,
    inline,
    without_dead,
    without_doubles,
)
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.passes.threading import refs_of, thread
from tensorlang.graph.program import Graph, input, key, trace
from tensorlang.graph.references import Ref, read, ref, write
from tensorlang.graph.specs import Dim, KeySpec, TensorSpec
from tensorlang.graph.text.parsing import parse
from tensorlang.graph.values import Key, Node, Tensor, Value

__all__ = [
    "Context",
    "Dim",
    "Function",
    "Graph",
    "Key",
    "KeySpec",
    "Network",
    "Node",
    "Ref",
    "Rewriter",
    "Tensor",
    "TensorSpec",
    "TrainingContext",
    "TrainingProgram",
    "Value",
    "Weight",
    "check_keys",
    "checkpoint",
    "cond",
    "constant",
    "fold",
    "function",
    "fuse",
    "gradient_of",
    "gradients",
    "inline",
    "input",
    "key",
    "let",
    "loop",
    "parse",
    "read",
    "ref",
    "refs_of",
    "thread",
    "trace",
    "while_loop",
    "without_dead",
    "without_doubles",
    "workloads",
    "write",
]
