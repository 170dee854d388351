"""Pooling with any windows, Col2Im, ConvTranspose of given sizes, by onnxruntime."""

import numpy as np
import pytest

from tensorlang.errors import TensorlangError
from tensorlang.layers import Model

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(5)
HEAD = '<ir_version: 9, opset_import: ["" : 22]> m (%s) => (float[a, b, c, d] y) {%s}'
WINDOWS = (
    "kernel_shape = [3, 2], pads = [2, 1, 2, 0]",
    "kernel_shape = [3, 2], dilations = [2, 3], strides = [2, 1]",
    "kernel_shape = [3, 3], pads = [1, 2, 0, 2], strides = [3, 2], ceil_mode = 1",
    'kernel_shape = [3, 3], auto_pad = "SAME_LOWER", strides = [2, 1]',
)


@pytest.fixture
def check(tmp_path):
    def checked(line, x, more="", inputs=()):
        sizes = ", ".join(map(str, x.shape))
        path = tmp_path / "m.onnx"
        model = onnx.parser.parse_model(HEAD % (f"float[{sizes}] x{more}", line))
        onnx.save(model, path)
        session = onnxruntime.InferenceSession(path)
        names = (each.name for each in session.get_inputs())
        given = dict(zip(names, (x, *inputs), strict=True))
        (wanted,) = session.run(None, given)
        found = Model.load(path, train=False)(*given.values())
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)

    return checked


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize(
    "op",
    [
        "AveragePool <%s>",
        "AveragePool <count_include_pad = 1, %s>",
        "LpPool <p = 3, %s>",
    ],
)
def test_windows(check, op, windows) -> None:
    x = RNG.normal(size=(2, 3, 9, 11)).astype(np.float32)
    check(f"y = {op % windows} (x)", x)


@pytest.mark.parametrize(
    "how",
    [
        "strides = [3, 2], output_shape = [10, 8]",
        "strides = [3, 2], output_shape = [8, 6]",
        'strides = [2, 2], auto_pad = "SAME_UPPER"',
        'strides = [2, 3], auto_pad = "SAME_LOWER"',
        "strides = [2, 2], pads = [0, 1, 2, 0]",
    ],
)
def test_transposed_convolutions_of_given_sizes(check, how) -> None:
    x = RNG.normal(size=(2, 3, 3, 3)).astype(np.float32)
    w = RNG.normal(size=(3, 2, 3, 3)).astype(np.float32)
    b = RNG.normal(size=2).astype(np.float32)
    more = ", float[3, 2, 3, 3] w, float[2] b"
    check(f"y = ConvTranspose <{how}> (x, w, b)", x, more, (w, b))


@pytest.mark.parametrize("how", ["", "pads = [1, 0, 2, 1]", "dilations = [2, 1]"])
def test_blocks_become_images(check, how) -> None:
    count = {"": 9, "pads = [1, 0, 2, 1]": 24, "dilations = [2, 1]": 3}[how]
    x = RNG.normal(size=(2, 12, count)).astype(np.float32)
    given = f"<{how}>" if how else ""
    line = f"""image = Constant <value = int64[2] {{5, 4}}> ()
    block = Constant <value = int64[2] {{3, 2}}> ()
    y = Col2Im {given} (x, image, block)"""
    check(line, x)


def test_blocks_that_do_not_fit(tmp_path) -> None:
    line = """image = Constant <value = int64[2] {5, 4}> ()
    block = Constant <value = int64[2] {3, 2}> ()
    y = Col2Im (x, image, block)"""
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(HEAD % ("float[2, 12, 7] x", line)), path)
    with pytest.raises(TensorlangError, match=r"Col2Im: 7 blocks, where images of"):
        Model.load(path, train=False)
