"""Resize, Upsample and Pad, against onnxruntime where it has them."""

import numpy as np
import pytest

from tensorlang.errors import TensorlangError
from tensorlang.layers import Model

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
RNG = np.random.default_rng(7)
HEAD = '<ir_version: 8, opset_import: ["" : %d]> m (float[%s] x) => (float[%s] y) {%s}'


def found(tmp_path, opset, shape, line):
    """What a file gives, and what onnxruntime gives."""
    dims = ", ".join(map(str, shape))
    letters = ", ".join("abcdefg"[: len(shape)])
    text = HEAD % (opset, dims, letters, line)
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    sizes = [n if isinstance(n, int) else 5 for n in shape]
    x = RNG.normal(size=sizes).astype(np.float32)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return Model.load(path, train=False)(x), session.run(None, {"x": x})[0]


SCALES = "s = Constant <value = float[4] {1.0, 1.0, %s, %s}> () "
SIZES = "s = Constant <value = int64[4] {2, 3, %d, %d}> () "


@pytest.mark.parametrize("scales", [(2.0, 3.0), (1.5, 0.6), (0.5, 1.0)])
@pytest.mark.parametrize(
    "how",
    [
        f'coordinate_transformation_mode = "{how}", mode = "{mode}"'
        for how in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        for mode in ("nearest", "linear", "cubic")
    ],
)
def test_scales(tmp_path, how, scales) -> None:
    line = f"{SCALES % scales} y = Resize <{how}> (x, , s)"
    mine, theirs = found(tmp_path, 13, (2, 3, 6, 10), line)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, strict=True)


@pytest.mark.parametrize("sizes", [(13, 7), (6, 10), (1, 1), (3, 30)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes(tmp_path, mode, sizes) -> None:
    line = f'{SIZES % sizes} y = Resize <mode = "{mode}"> (x, , , s)'
    mine, theirs = found(tmp_path, 18, (2, 3, 6, 10), line)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, strict=True)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_before_version_11(tmp_path, mode) -> None:
    line = f'{SCALES % (2.0, 3.0)} y = Resize <mode = "{mode}"> (x, s)'
    mine, theirs = found(tmp_path, 10, (2, 3, 6, 10), line)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, strict=True)
    line = f'{SCALES % (2.0, 3.0)} y = Upsample <mode = "{mode}"> (x, s)'
    mine, theirs = found(tmp_path, 9, (2, 3, 6, 10), line)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, strict=True)


def test_sizes_that_are_open(tmp_path) -> None:
    line = f"{SCALES % (2.0, 3.0)} y = Resize (x, , s)"
    mine, theirs = found(tmp_path, 13, ("N", 3, "H", "W"), line)
    np.testing.assert_array_equal(mine, theirs, strict=True)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap", "constant"])
def test_pad(tmp_path, mode) -> None:
    line = f"""p = Constant <value = int64[6] {{0, 2, 0, 0, 4, 3}}> ()
      y = Pad <mode = "{mode}"> (x, p)"""
    mine, theirs = found(tmp_path, 19, ("N", 5, 6), line)
    np.testing.assert_array_equal(mine, theirs, strict=True)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (f"{SCALES % (0.0, 1.0)} y = Resize (x, , s)", "scales"),
        (f'{SIZES % (2, 2)} y = Resize <mode = "area"> (x, , , s)', "mode='area'"),
        (
            (
                f'{SIZES % (2, 2)} y = Resize <mode="linear", '
                'coordinate_transformation_mode = "own"> (x, , , s)'
            ),
            "mode='own'",
        ),
    ],
)
def test_what_is_refused(tmp_path, line, complaint) -> None:
    text = HEAD % (13, "2, 3, 4, 4", "a, b, c, d", line)
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(TensorlangError, match=complaint):
        Model.load(tmp_path / "m.onnx", train=False)(np.ones((2, 3, 4, 4), "f"))
