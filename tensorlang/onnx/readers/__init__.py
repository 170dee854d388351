"""What each operator of ONNX is among ours."""

from __future__ import annotations

from typing import Any, Final

from tensorlang.graph.values import Value
from tensorlang.onnx.calls import Call, Reader
from tensorlang.onnx.constants import FOLDED, folded, shape_of
from tensorlang.onnx.functions import DOMAIN
from tensorlang.onnx.kinds import REDUCTIONS, SAME
from tensorlang.onnx.readers import forms, images, norms, plain, shapes
from tensorlang.onnx.readers.own import OURS
from tensorlang.ops import find, math, nn


def has(node: Any) -> bool:
    """Whether we read nodes of this kind."""
    if node.domain == DOMAIN:
        return node.op_type in OURS
    return node.domain in {"", "ai.onnx"} and (
        node.op_type in READERS or node.op_type in FOLDED
    )


def applied(call: Call, domain: str) -> Any:
    """What a node gives: a value, an array that is known now, or a tuple of them."""
    if domain == DOMAIN:
        return OURS[call.kind](call)
    if call.kind in FOLDED and not any(isinstance(x, Value) for x in call.inputs):
        return folded(call)
    if call.kind not in READERS:
        raise call.refuse("we have it for constants only")
    return READERS[call.kind](call)


READERS: Final[dict[str, Reader]] = {
    **{kind: plain.same(find(id)) for id, kind in SAME.items() if id != "let"},
    **{kind: plain.reduced(find(id)) for id, kind in REDUCTIONS.items()},
    "ArgMax": plain.place(math.argmax),
    "ArgMin": plain.place(math.argmin),
    "AveragePool": images.pool("avg_pool"),
    "BatchNormalization": norms.batch_norm,
    "Cast": plain.cast,
    "Clip": plain.clip,
    "Concat": shapes.concat,
    "Conv": images.conv,
    "ConvTranspose": images.conv_transpose,
    "Dropout": norms.dropout,
    "Elu": plain.elu,
    "Expand": shapes.expand,
    "Flatten": shapes.flatten,
    "Gather": shapes.element,
    "Gelu": plain.gelu,
    "Gemm": plain.gemm,
    "GlobalAveragePool": lambda call: nn.global_avg_pool(call.inputs[0]),
    "GlobalMaxPool": lambda call: nn.global_max_pool(call.inputs[0]),
    "HardSigmoid": plain.hard_sigmoid,
    "HardSwish": plain.hard_swish,
    "Identity": lambda call: call.inputs[0],
    "If": forms.branch,
    "LayerNormalization": norms.layer_norm,
    "LeakyRelu": plain.leaky,
    "LogSoftmax": plain.along(nn.log_softmax),
    "Loop": forms.loop,
    "MatMul": plain.matmul,
    "MaxPool": images.pool("max_pool"),
    "PRelu": plain.prelu,
    "Pad": shapes.pad,
    "Reshape": shapes.reshape,
    "Shape": shape_of,
    "Slice": shapes.slices,
    "Softmax": plain.along(nn.softmax),
    "Softplus": lambda call: nn.softplus(call.inputs[0]),
    "Split": shapes.split,
    "Squeeze": shapes.moved,
    "Tanh": plain.same(nn.tanh),
    "Transpose": shapes.transpose,
    "Unsqueeze": shapes.moved,
}
