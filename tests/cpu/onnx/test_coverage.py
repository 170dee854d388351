"""Operators by their functions, values known at calls, and conversions."""

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, KernelError, TensorlangError
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


def test_elements_are_gathered_and_scattered_along_an_axis(load) -> None:
    model = load("""m (int8[4, 5] x, int32[2, 3] at) => (int8[2, 3] y, int8[4, 5] z) {
        y = GatherElements <axis = 1> (x, at)
        z = ScatterElements <axis = 1, reduction = "add"> (x, at, y) }""")
    x = RNG.integers(-9, 9, (4, 5)).astype(np.int8)
    at = np.array([[0, -1, 0], [4, 2, -5]], np.int32)
    y, z = model(x, at)
    wanted, sums = np.take_along_axis(x[:2], at, 1), x.copy()
    np.add.at(sums, (np.arange(2)[:, None], at), wanted)
    np.testing.assert_array_equal(y, wanted, strict=True)
    np.testing.assert_array_equal(z, sums, strict=True)
    # an index that is outside along its axis, though not of the array
    for wrong in (5, -6):
        with pytest.raises(KernelError, match="out of range"):
            model(x, np.full((2, 3), wrong, np.int32))


@pytest.mark.parametrize("kind", ["float", "int64", "bool"])
def test_rows_are_gathered_and_scattered_by_tuples(load, kind) -> None:
    model = load(f"""m ({kind}[3, 4, 2] x, int64[5, 2] at, {kind}[5, 2] u)
      => ({kind}[5, 2] y, {kind}[3, 4, 2] z) {{
        y = GatherND (x, at)  z = ScatterND (x, at, u) }}""")
    dtype = {"float": "float32"}.get(kind, kind)
    x, u = (RNG.integers(0, 2, s).astype(dtype) for s in ((3, 4, 2), (5, 2)))
    at = np.array([[0, 0], [2, -1], [1, 2], [-1, 0], [0, 3]])
    y, z = model(x, at, u)
    wanted = x.copy()
    wanted[tuple(at.T)] = u
    np.testing.assert_array_equal(y, x[tuple(at.T)], strict=True)
    np.testing.assert_array_equal(z, wanted, strict=True)
    at[0, 1] = 4
    with pytest.raises(KernelError, match="out of range"):
        model(x, at, u)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_the_largest_of_rows_whose_number_is_an_input(load, dtype, largest) -> None:
    kind = {"float32": "float"}.get(dtype, dtype)
    model = load(f"""m ({kind}[N, 7] x, int64[1] k) => ({kind}[a, b] y, int64[a, b] i)
      {{ y, i = TopK <axis = 1, largest = {largest}> (x, k) }}""")
    x = RNG.integers(0, 5, (3, 7)).astype(dtype)
    keys = -x.astype(int) if largest else x.astype(int)
    for k in (3, 0, 7):
        order = np.argsort(keys, axis=1, kind="stable")[:, :k]
        y, i = model(x, np.array([k]))
        np.testing.assert_array_equal(i, order, strict=True)
        np.testing.assert_array_equal(y, np.take_along_axis(x, order, 1), strict=True)
    with pytest.raises(TensorlangError, match="8 of 7 elements"):
        model(x, np.array([8]))


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("kind", ["float", "int32"])
def test_cumulative_sums(load, kind, reverse, exclusive) -> None:
    model = load(f"""m ({kind}[N, 5] x, int64 axis) => ({kind}[N, 5] y) {{
      y = CumSum <reverse = {reverse}, exclusive = {exclusive}> (x, axis) }}""")
    for rows in (4, 1, 0):
        dtype = {"float": "float32"}.get(kind, kind)
        x = RNG.integers(-9, 9, (rows, 5)).astype(dtype)
        line = x[::-1] if reverse else x
        wanted = np.cumsum(line, 0) - (line if exclusive else 0)
        wanted = (wanted[::-1] if reverse else wanted).astype(dtype)
        np.testing.assert_array_equal(model(x, np.array(0)), wanted, strict=True)


def test_slices_that_a_condition_of_the_call_picks(load) -> None:
    model = load("""m (float[N, 3] x, bool[K] c) => (float[a, 3] y) {
        y = Compress <axis = 0> (x, c) }""")
    x = RNG.normal(size=(4, 3)).astype(np.float32)
    for c in ([True, False, True], [False] * 4, [True] * 4):
        found = model(x, np.array(c))
        np.testing.assert_array_equal(found, np.compress(c, x, 0), strict=True)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64"])
def test_a_constant_is_cast_as_data_is(load, kind) -> None:
    ends = ["-0.9", "255.9", "-128.9", "9.3e18", "-9.3e18", "1e30"]
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    model = load(
        f"m (float[N] x) => ({kind}[N] y, {kind}[M] z) {{ y = Cast <to = {to}> (x) "
        f"c = Constant <value_floats = [{', '.join(ends)}]> () "
        "d = Constant <value_floats = [1.0, -1.0, 0.0]> () "
        "e = Constant <value_floats = [0.0, 0.0, 0.0]> () far = Div (d, e) "
        f"all = Concat <axis = 0> (c, far) z = Cast <to = {to}> (all) }}"
    )
    x = np.asarray([*map(float, ends), np.inf, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(*model(x))


@pytest.mark.parametrize(
    "line",
    [
        "y = Mod <fmod = 1> (x, v)",
        "y = Mod (x, v)",
        "y = Pow (v, i)",
        "y = Tile (x, r)",
        "y = Selu (x)",
        "y = Shrink <bias = 0.5, lambd = 1.0> (x)",
        "y = CumProd <reverse = 1, exclusive = 1> (x, o)",
        "z = ArgMax <select_last_index = 1> (i)  y = Cast <to = 1> (z)",
        "e = EyeLike <k = 1> (x)  y = Add (x, e)",
        "y = LpNormalization (x)",
        "y = LRN <size = 3> (w)",
        "y = InstanceNormalization (w, n, n)",
    ],
)
def test_operators_of_several_kinds(load, line) -> None:
    """As ONNX's reference has them."""
    reference = pytest.importorskip("onnx.reference")
    dims = "a, b, c, d" if "w" in line else "a, b"
    opset = 26 if "CumProd" in line else 22
    text = f"""m (float[3, 5] x, float[5] v, int32[3, 5] i, float[3, 3, 4, 5] w)
      => (float[{dims}] y) {{
        r = Constant <value = int64[2] {{2, 3}}> ()
        o = Constant <value = int64 {{1}}> ()
        n = Constant <value = float[3] {{0.5, 1.0, 2.0}}> () {line} }}"""
    given = {
        "x": RNG.normal(size=(3, 5)).astype(np.float32) * 3,
        "v": RNG.uniform(0.5, 2, 5).astype(np.float32),
        "i": RNG.integers(0, 3, (3, 5)).astype(np.int32),
        "w": RNG.normal(size=(3, 3, 4, 5)).astype(np.float32),
    }
    head = f'<ir_version: 10, opset_import: ["" : {opset}]>'
    proto = onnx.parser.parse_model(head + text)
    (wanted,) = reference.ReferenceEvaluator(proto).run(None, given)
    found = load(text, opset)(*given.values())
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("repeats", [(1, 1), (2, 3), (0, 2), (1, 4)])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1, 1)])
def test_tiles(load, shape, repeats) -> None:
    model = load("""m (float[N, K] x, int64[2] n, bool[2] b)
      => (float[a, c] y, bool[d] z) {
        y = Tile (x, n)  two = Constant <value_ints = [2]> ()  z = Tile (b, two) }""")
    x, bits = RNG.normal(size=shape).astype(np.float32), np.array([True, False])
    y, z = model(x, np.array(repeats), bits)
    np.testing.assert_array_equal(y, np.tile(x, repeats))
    np.testing.assert_array_equal(z, np.tile(bits, 2))


def test_constants_are_tiled(load) -> None:
    model = load("""m (float[N, 3] x) => (float[N, 3] y, float[N, 6] z) {
      two = Constant <value_ints = [3]> ()  c = Constant <value_floats = [0.5]> ()
      row = Tile (c, two)  y = Add (x, row)
      n = Constant <value_ints = [1, 2]> ()  z = Tile (x, n) }""")
    x = RNG.normal(size=(4, 3)).astype(np.float32)
    y, z = model(x)
    np.testing.assert_array_equal(y, x + np.float32(0.5))
    np.testing.assert_array_equal(z, np.tile(x, (1, 2)))


def test_tiles_of_another_rank_are_refused(load) -> None:
    with pytest.raises(TensorlangError, match="repeats"):
        load("""m (float[2, 3] x) => (float[a, b] y) {
          n = Constant <value_ints = [2]> ()  y = Tile (x, n) }""")
