"""What an operator means is what the file's opset says, as onnxruntime has it."""

import importlib

import numpy as np
import pytest

from tensorlang.errors import TensorlangError
from tensorlang.layers import Model

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")

HEAD = (
    '<ir_version: 8, opset_import: ["" : %d]>'
    " m (float[2, 3, 4, 4] x, float[2, 3, H, W] o)"
)
AXES = "a = Constant <value = int64[1] {1}> ()"
WHOLE = "w = Constant <value = int64[2, 2] {7, -3, 2, 5}> ()"
SAME = [
    ((9, 12, 13, 25), "y = Softmax (x)"),
    ((9, 12, 13), "y = LogSoftmax <axis = 1> (x)"),
    (
        (10, 12, 13),
        (
            "z = Constant <value = int64[1] {0}> () s = Slice (x, z, z)"
            " y = Softmax <axis = 1> (s)"
        ),
    ),
    ((9, 13), "l = Log (x) y = Sign (l)"),
    ((2, 11), "y, z = Split <axis = 1, split = [1, 2]> (x)"),
    (
        (13, 18),
        "s = Constant <value = int64[2] {1, 2}> () y, z = Split <axis = 1> (x, s)",
    ),
    ((18, 25), "y, z = Split <axis = 1, num_outputs = 2> (x)"),
    ((1, 11), "y = ReduceSum <axes = [1]> (x)"),
    ((13, 25), f"{AXES} y = ReduceSum (x, a)"),
    ((1, 17), "y = ReduceMax <axes = [-1], keepdims = 0> (x)"),
    ((18,), f"{AXES} y = ReduceMax (x, a)"),
    ((2, 10), "y = Pad <pads = [0, 0, 1, 0, 0, 0, 0, 2], value = 2.5> (x)"),
    ((1, 9), "y = Slice <starts = [1], ends = [-1], axes = [3]> (x)"),
    ((6, 10), "y = Clip <min = -0.5, max = 0.5> (x)"),
    ((11, 13), "l = Constant <value = float {0.2}> () y = Clip (x, , l)"),
    ((5, 13), "s = Constant <value = int64[2] {0, -1}> () y = Reshape (x, s)"),
    (
        (7, 10, 11, 19),
        "y = AveragePool <kernel_shape = [3, 2], pads = [1, 0, 1, 1]> (x)",
    ),
    (
        (10, 19),
        "y = AveragePool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x)",
    ),
    ((10, 22), "y = MaxPool <kernel_shape = [2, 2], dilations = [2, 1]> (x)"),
    ((19, 22), "y = AveragePool <kernel_shape = [2, 2], dilations = [2, 1]> (x)"),
    ((7, 10, 12, 22), "y = Dropout (x)"),
    ((11, 13), "f = Flatten (x) t = Transpose <perm = [1, 0]> (f) y = Gemm (f, t)"),
    ((1, 13), f"{WHOLE} y = ReduceProd <axes = [1]> (w)"),
    ((10, 13), f"{WHOLE} t = Transpose (w) y = Mod <fmod = 1> (w, t)"),
    ((10, 13), f"{WHOLE} t = Transpose (w) y = Mod (w, t)"),
    ((7, 13), f"{WHOLE} t = Transpose (w) y = Div (w, t)"),
    *(
        ((14,), f"k = Constant <value_int = {k}> () y = Trilu <upper = {upper}> (x, k)")
        for k in (-(1 << 63), -1, 2, (1 << 63) - 1)
        for upper in (0, 1)
    ),
]
REFUSED = [
    (13, "y = Softmax <beta = 2.0> (x)", r"beta"),
    (29, "y = Relu (x)", r"newer than 28"),
    (99, "y = Relu (x)", r"newer than 28"),
    (11, f"{AXES} y = ReduceSum (x, a)", r"ReduceSum"),
    (13, "y = ReduceSum <axes = [1]> (x)", r"axes"),
    (13, "a = Constant <value = int64[0] {}> () y = Squeeze (x, a)", r"are empty"),
    (12, "y = Conv (x, o)", r"windows of"),
    (13, f"{WHOLE} y = ReduceLogSumExp (w)", r"in ONNX it is tensor.int64"),
    (
        14,
        (
            "s = Constant <value = int64[2] {2, 99999999999}> ()"
            " e = ConstantOfShape (s) y = Trilu (e)"
        ),
        r"give largest=",
    ),
    (
        14,
        (
            "s = Constant <value = int64[3] {0, 9999999, 9999999}> ()"
            " e = ConstantOfShape (s) y = Trilu (e)"
        ),
        r"give largest=",
    ),
]


def model(opset, nodes):
    parsed = onnx.parser.parse_model(f"{HEAD % opset} => (y) {{ {nodes} }}")
    made = onnx.shape_inference.infer_shapes(parsed)
    made.graph.output[0].type.tensor_type.shape.SetInParent()
    return made.SerializeToString()


@pytest.mark.parametrize(
    ("opset", "nodes"), [(opset, nodes) for opsets, nodes in SAME for opset in opsets]
)
def test_it_is_as_in_onnxruntime(programs, opset, nodes) -> None:
    fuzzer = importlib.import_module(f"{programs.__name__}.fuzzers.onnx")
    case = fuzzer.Case(model(opset, nodes), seed=0)
    assert fuzzer.check(case) == ["the same"]


@pytest.mark.parametrize(("opset", "nodes", "said"), REFUSED)
def test_what_is_not_meant_so_is_refused(tmp_path, opset, nodes, said) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(opset, nodes))
    with pytest.raises(TensorlangError, match=said):
        Model.load(path)


def test_the_limit_is_for_all_that_constants_give(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    many = " ".join(f"c{n} = Concat <axis = 0> (e, e)" for n in range(9))
    wide = "s = Constant <value = int64[1] {1024}> () e = ConstantOfShape (s)"
    path.write_bytes(model(18, f"{wide} {many} y = Relu (x)"))
    with pytest.raises(TensorlangError, match=r"all that its constants give"):
        Model.load(path, largest=1 << 16)
    Model.load(path, largest=1 << 17)


@pytest.mark.parametrize("opset", [6, 13])
def test_softmax_of_a_scalar_is_one(tmp_path, opset) -> None:
    path = tmp_path / "m.onnx"
    nodes = "c = Constant <value = float {3}> () s = Softmax <axis = 0> (c)"
    path.write_bytes(model(opset, f"{nodes} y = Mul (x, s)"))
    ones = np.ones((2, 3, 4, 4), np.float32)
    assert (Model.load(path)(ones, ones) == 1).all()
