"""Operators by their functions, values known at calls, and conversions."""

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, TensorlangError
from tensorlang.layers import Model

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
RNG = np.random.default_rng(5)


@pytest.fixture
def load(tmp_path):
    def loaded(text, opset=22):
        head = f'<ir_version: 10, opset_import: ["" : {opset}, "own" : 1]>\n'
        onnx.save(onnx.parser.parse_model(head + text), tmp_path / "m.onnx")
        return Model.load(tmp_path / "m.onnx")

    return loaded


def test_shapes_and_axes_are_known_at_the_call(load) -> None:
    model = load("""m (float[N, 6] x, int64[K] shape, int64[1] axes)
      => (float[a, b, c] y, int64 n) {
        z = Reshape (x, shape)  y = ReduceSum <keepdims = 1> (z, axes)
        t = Shape (y)  n = ReduceProd <keepdims = 0> (t) }""")
    x = RNG.normal(size=(4, 6)).astype(np.float32)
    for shape, axis in (((2, 3, 4), 1), ((8, 3, 1), -1), ((2, 3, 4), 1)):
        y, n = model(x, np.array(shape), np.array([axis]))
        wanted = x.reshape(shape).sum(axis, keepdims=True)
        np.testing.assert_allclose(y, wanted, rtol=1e-5)
        assert n == wanted.size
    with pytest.raises(ArgumentError, match="takes 3 inputs, got 1"):
        model(x)
    with pytest.raises(DTypeError, match="'axes' is i64"):
        model(x, np.array([2, 12]), np.array([1], np.int32))
    with pytest.raises(TensorlangError, match="Reshape"):
        model(x, np.array([5, 5]), np.array([1]))


def test_a_function_of_the_file_is_inlined(load) -> None:
    model = load("""m (float[N, 3] x) => (float[N, 3] y) {
        y = own.shifted <by = 2.0> (x) }
      <opset_import: ["" : 22], domain: "own">
      shifted <by> (x) => (y) {
        c = Constant <value_float: float = @by> ()  d = CastLike (c, x)
        y = Add (x, d) }""")
    for rows in (0, 1, 5):
        x = RNG.normal(size=(rows, 3)).astype(np.float32)
        np.testing.assert_allclose(model(x), x + 2, rtol=1e-6)


def test_a_function_that_calls_itself_is_refused(load) -> None:
    with pytest.raises(TensorlangError, match="recursive"):
        load("""m (float[3] x) => (float[3] y) { y = own.f (x) }
          <opset_import: ["" : 22, "own" : 1], domain: "own">
          f (x) => (y) { y = own.f (x) }""")


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 17)])
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("y = Celu (x)", lambda x: np.where(x > 0, x, np.expm1(x))),
        ("y = Mish (x)", lambda x: x * np.tanh(np.log1p(np.exp(x)))),
        ("y = Round (x)", np.round),
        ("y = Sinh (x)", np.sinh),
        ("y = Cosh (x)", np.cosh),
        ("y = Tan (x)", np.tan),
        ("y = Asinh (x)", np.arcsinh),
    ],
)  # fmt: skip
def test_functions_of_one_array(load, line, wanted, shape) -> None:
    dims = ", ".join(map(str, shape))
    model = load(f"m (float[{dims}] x) => (float[{dims}] y) {{ {line} }}")
    x = RNG.normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(model(x), wanted(x), rtol=1e-5, atol=1e-6)


KINDS = ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64")


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("of", KINDS)
def test_casts_between_all_types(load, of, to) -> None:
    names = {"float32": "float", "float64": "double"}
    a, b = (names.get(kind, kind) for kind in (of, to))
    model = load(f"m ({a}[N] x, {b}[1] t) => ({b}[N] y) {{ y = CastLike (x, t) }}")
    for x in ([0, 1, 2, 100], []):
        given = np.array(x).astype(of)
        found = model(given, np.zeros(1, to))
        np.testing.assert_array_equal(found, given.astype(to), strict=True)
