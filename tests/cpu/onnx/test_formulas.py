"""Activations that files write out are found, and become part of a dense layer."""

import numpy as np
import pytest

from tensorlang.graph import fuse
from tensorlang.layers import Model
from tensorlang.ops import nn

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")

GELU = """
  three = Constant <value_float = 3.0> ()
  half = Constant <value_float = 0.5> ()
  one = Constant <value_float = 1.0> ()
  slope = Constant <value_float = 0.7978845608> ()
  small = Constant <value_float = {small}> ()
  cube = {cube}
  less = Mul(cube, small)
  sum = Add(x, less)
  scaled = Mul(slope, sum)
  bent = Tanh(scaled)
  gate = Add(one, bent)
"""
POWER, PRODUCT = "Pow(x, three)", "Mul(square, x)"
FORMS = {
    "half first": "first = Mul(half, x)\n y = Mul(first, gate)",
    "half last": "first = Mul(x, gate)\n y = Mul(first, half)",
    "half of the gate": "first = Mul(gate, half)\n y = Mul(x, first)",
}
RNG = np.random.default_rng(3)


def loaded(tmp_path, body):
    """A dense layer, its result in three dimensions, and what follows."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[6, 4] a, float[4, 8] w) => (float[1, 6, 8] y) {{
      shape = Constant <value_ints = [1, 6, 8]> ()
      flat = Gemm(a, w)
      x = Reshape(flat, shape)
      {body}
    }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    return Model.load(tmp_path / "m.onnx", train=False)


def ids(model):
    return [node.id for node in fuse(model.network.use.graph).nodes]


def test_gelu_is_found_and_fused(tmp_path) -> None:
    a, w = (RNG.normal(size=shape).astype(np.float32) for shape in ((6, 4), (4, 8)))
    wanted = nn.gelu(a @ w, "tanh").reshape(1, 6, 8)
    for form, cube in zip(FORMS, (POWER, PRODUCT, POWER), strict=True):
        text = GELU.format(small=0.044715, cube=cube) + FORMS[form]
        model = loaded(tmp_path, "square = Mul(x, x)\n" + text)
        assert ids(model) == ["nn.dense", "nn.reshape"]
    np.testing.assert_allclose(model(a, w), wanted, rtol=1e-5, atol=1e-6)


def test_what_is_nearly_gelu_is_computed_as_it_is(tmp_path) -> None:
    text = GELU.format(small=0.05, cube=POWER) + FORMS["half first"]
    assert "math.tanh" in ids(loaded(tmp_path, text))
    other = GELU.format(small=0.044715, cube="Mul(x, three)") + FORMS["half first"]
    assert "math.tanh" in ids(loaded(tmp_path, other))
