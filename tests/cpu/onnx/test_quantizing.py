"""Quantized networks and products of integers, against onnxruntime and NumPy."""

import numpy as np
import pytest

from tensorlang.errors import TensorlangError
from tensorlang.instructions import dot_product
from tensorlang.layers import Model
from tensorlang.ops import nn
from tensorlang.targets import get

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
RNG = np.random.default_rng(10)
HEAD = '<ir_version: 8, opset_import: ["" : 17]> m (%s) => (%s) {%s}'
NAMES = {"float32": "float"}


def whole(dtype, *shape):
    limits = np.iinfo(dtype)
    made = RNG.integers(limits.min, limits.max + 1, shape)
    return np.asarray(made).astype(dtype)


def found(tmp_path, outputs, line, constants=(), **inputs):
    """What a file gives, and what onnxruntime gives."""
    takes = ", ".join(
        f"{NAMES.get(a.dtype.name, a.dtype)}{[*a.shape] or ''} {n}"
        for n, a in inputs.items()
    )
    model = onnx.parser.parse_model(HEAD % (takes, outputs, line))
    for name in constants:
        kept = [value for value in model.graph.input if value.name != name]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        held = onnx.numpy_helper.from_array(inputs.pop(name), name)
        model.graph.initializer.append(held)
    onnx.save(model, tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    mine = Model.load(tmp_path / "m.onnx", train=False)(*inputs.values())
    return mine, session.run(None, inputs)[0]


@pytest.mark.parametrize("fixed", [(), ("b",), ("b", "z")])
@pytest.mark.parametrize("depth", [5, 700])
@pytest.mark.parametrize("zeros", ["", ", y", ", y, z"])
@pytest.mark.parametrize("of_b", ["int8", "uint8"])
def test_products_are_exact(tmp_path, of_b, zeros, depth, fixed) -> None:
    given = {"a": whole("uint8", 3, depth), "b": whole(of_b, depth, 9)}
    given |= {"y": whole("uint8")} if "y" in zeros else {}
    given |= {"z": whole(of_b)} if "z" in zeros else {}
    line = f"r = MatMulInteger (a, b{zeros})"
    fixed = [name for name in fixed if name in given]
    mine, _ = found(tmp_path, "int32[p, q] r", line, fixed, **given)
    np.testing.assert_array_equal(mine, exact(**given), strict=True)


def has_dots():
    """Whether onnxruntime's products of bytes are exact: others saturate 16 bits."""
    return dot_product(get("llvm").features, ("u8", "i8")) is not None


def exact(a, b, y=0, z=0):
    """The products: those of onnxruntime saturate where there are no dot products."""
    return (a.astype(np.int32) - y) @ (b.astype(np.int32) - z)


@pytest.mark.parametrize("columns", [(), (6,)])
def test_a_batch_and_zero_points_of_columns(tmp_path, columns) -> None:
    a, b = whole("uint8", 2, 3, 300), whole("int8", 300, 6)
    given = {"a": a, "b": b, "y": whole("uint8"), "z": whole("int8", *columns)}
    mine, _ = found(
        tmp_path, "int32[p, q, r] s", "s = MatMulInteger (a, b, y, z)", **given
    )
    np.testing.assert_array_equal(mine, exact(**given), strict=True)


@pytest.mark.parametrize("channels", [3, 80])
@pytest.mark.parametrize("zeros", ["", ", y", ", y, z"])
def test_convolutions_are_exact(tmp_path, zeros, channels) -> None:
    given = {"x": whole("uint8", 2, channels, 7, 8)}
    given["w"] = whole("uint8", 5, channels, 3, 3)
    given |= {"y": whole("uint8")} if "y" in zeros else {}
    given |= {"z": whole("uint8")} if "z" in zeros else {}
    line = f"r = ConvInteger <pads = [1, 0, 2, 1], strides = [2, 1]> (x, w{zeros})"
    mine, theirs = found(tmp_path, "int32[a, b, c, d] r", line, **given)
    np.testing.assert_array_equal(mine, theirs, strict=True)


def test_a_quantized_network(tmp_path) -> None:
    """Differs by at most 1 where a result is nearly between two."""
    given = {
        "x": RNG.normal(size=(2, 4, 6, 6)).astype(np.float32),
        "w": whole("int8", 8, 4, 3, 3) // (1 if has_dots() else 2),
        "b": whole("int8", 8).astype(np.int32) * 50,
        "v": whole("uint8", 8 * 36, 10),
    }
    line = """
      s = Constant <value = float {0.02}> ()
      z = Constant <value = uint8 {120}> ()
      ws = Constant <value = float[8]
        {0.01, 0.02, 0.03, 0.04, 0.1, 0.2, 0.3, 0.4}> ()
      wz = Constant <value = int8[8] {0, 0, 0, 0, 0, 0, 0, 0}> ()
      t = Constant <value = float {0.1}> ()
      vs = Constant <value = float {0.003}> ()
      q = QuantizeLinear (x, s, z)
      h = QLinearConv <pads = [1, 1, 1, 1]> (q, s, z, w, ws, wz, t, z, b)
      f = Flatten (h)
      y = QLinearMatMul (f, t, z, v, vs, z, t, z)"""
    constants = ("w", "b", "v")
    mine, theirs = found(tmp_path, "uint8[a, b] y", line, constants, **given)
    assert mine.dtype == theirs.dtype
    assert abs(mine.astype(int) - theirs.astype(int)).max() <= 1


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_there_and_back_along_an_axis(tmp_path, dtype, axis) -> None:
    x = RNG.normal(size=(4, 4, 4)).astype(np.float32) * 40
    scale = RNG.uniform(0.1, 2, 4).astype(np.float32)
    given = {"x": x, "s": scale, "z": whole(dtype, 4)}
    line = f"""q = QuantizeLinear <axis = {axis}> (x, s, z)
      y = DequantizeLinear <axis = {axis}> (q, s, z)"""
    mine, theirs = found(tmp_path, "float[a, b, c] y", line, **given)
    np.testing.assert_allclose(mine, theirs, rtol=1e-6, strict=True)


def test_what_is_refused(tmp_path) -> None:
    x, s = np.ones((2, 3), np.float32), np.ones(4, np.float32)
    text = HEAD % (
        "float[2, 3] x, float[4] s",
        "uint8[a, b] y",
        "y = QuantizeLinear (x, s)",
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(TensorlangError, match="along axis 1"):
        Model.load(tmp_path / "m.onnx", train=False)(x, s)


def test_sums_alone() -> None:
    x, w = whole("int8", 5, 33), whole("int8", 7, 33)
    ones = np.ones(1, np.float32)
    found = nn.dense_int8(x, w, ones, zero_points=np.array([3], np.int8), dtype="i32")
    wanted = (x.astype(np.int32) - 3) @ w.T.astype(np.int32)
    np.testing.assert_array_equal(found, wanted, strict=True)
    with pytest.raises(TensorlangError, match="not scaled by group or row"):
        nn.dense_int8(x, w, ones, np.ones(7, np.float32), dtype="i32")
