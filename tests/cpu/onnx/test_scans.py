"""Scan, and loops that collect results of their turns, against onnxruntime."""

import numpy as np
import pytest

from tensorlang.errors import TensorlangError
from tensorlang.layers import Model

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
RNG = np.random.default_rng(11)
HEAD = '<ir_version: 8, opset_import: ["" : 17]> m (%s) => (%s) {%s}'
BODY = """body (float[2] h, float[2] u, float[2] v) => (float[2] k, float[2] y) {
  s = Mul (u, v)  k = Add (h, s)  y = Tanh (k) }"""


def saved(tmp_path, takes, gives, line):
    model = onnx.parser.parse_model(HEAD % (takes, gives, line))
    onnx.save(model, tmp_path / "m.onnx")
    return Model.load(tmp_path / "m.onnx", train=False)


@pytest.mark.parametrize("backward", ["0, 0", "0, 1"])
@pytest.mark.parametrize(("axis", "shape"), [(0, "5, 2"), (1, "2, 5")])
@pytest.mark.parametrize("out", ["", "scan_output_axes = [1],"])
def test_a_scan(tmp_path, axis, shape, backward, out) -> None:
    model = saved(
        tmp_path,
        f"float[2] h, float[{shape}] u, float[5, 2] v",
        "float[2] k, float[p, q] y",
        f"""k, y = Scan <num_scan_inputs = 2, {out} scan_input_axes = [{axis}, 0],
          scan_input_directions = [{backward}], body = {BODY}> (h, u, v)""",
    )
    sizes = [2, 5] if axis else [5, 2]
    given = {
        n: RNG.normal(size=s).astype(np.float32) for n, s in (("h", 2), ("u", sizes))
    }
    given["v"] = RNG.normal(size=(5, 2)).astype(np.float32)
    wanted = runtime.InferenceSession(tmp_path / "m.onnx").run(None, given)
    for mine, theirs in zip(model(*given.values()), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6, strict=True)


LOOP = """h2, y = Loop <body = b (int64 i, bool c, float[2] h)
  => (bool d, float[2] k, float[2] z) {
  d = Identity (c)  k = Add (h, x)  f = Cast <to = 1> (i)  z = Mul (k, f) }>"""


def test_a_loop_whose_count_is_known_at_the_call(tmp_path) -> None:
    model = saved(
        tmp_path,
        "float[2] x, int64 n, bool c",
        "float[2] h2, float[p, 2] y",
        f"{LOOP} (n, c, x)",
    )
    x = RNG.normal(size=2).astype(np.float32)
    for turns in (3, 1, 20):
        given = {"x": x, "n": np.array(turns), "c": np.array(True)}
        wanted = runtime.InferenceSession(tmp_path / "m.onnx").run(None, given)
        for mine, theirs in zip(model(*given.values()), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, strict=True)
    with pytest.raises(TensorlangError, match="collects nothing"):
        model(x, np.array(0), np.array(True))
    with pytest.raises(TensorlangError, match="at most 4096"):
        model(x, np.array(10_000), np.array(True))


def test_a_loop_that_data_ends_is_refused(tmp_path) -> None:
    with pytest.raises(TensorlangError, match="depends on data"):
        saved(
            tmp_path,
            "float[2] x, int64 n",
            "float[2] h2, float[p, 2] y",
            f"""s = ReduceSum <keepdims = 0> (x)
              o = Constant <value = float {{1.0}}> ()
              l = Less (s, o)
              {LOOP.replace("Identity (c)", "Not (c)")} (n, l, x)""",
        )(np.ones(2, np.float32), np.array(3))
