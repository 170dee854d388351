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
        "MaxPool <%s>",
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


def test_sums_of_halves_do_not_overflow(tmp_path) -> None:
    x = np.full((1, 1, 40, 40), 100, np.float16)
    line = "y = AveragePool <kernel_shape = [32, 32], pads = [17, 17, 17, 17]> (x)"
    head = HEAD.replace("(float[", "(float16[")
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(head % ("float16[1, 1, 40, 40] x", line)), path)
    found = Model.load(path, train=False)(x)
    assert found.dtype == np.float16
    assert np.all(found == 100)


SQUARE = "kernel_shape = [2, 2]"
HUGE = 2**40


@pytest.mark.parametrize(
    "line",
    [
        f"LpPool <{SQUARE}, p = 0>",
        f'AveragePool <{SQUARE}, strides = [0, 1], auto_pad = "SAME_UPPER">',
        f"AveragePool <{SQUARE}, strides = [0, 1], dilations = [2, 2], ceil_mode = 1>",
        f"AveragePool <kernel_shape = [{HUGE}, 2], dilations = [2, 2]>",
        f"AveragePool <{SQUARE}, dilations = [2, 2], pads = [{HUGE}, 0, 0, 0]>",
    ],
)
def test_windows_that_do_not_fit(tmp_path, line) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        onnx.parser.parse_model(HEAD % ("float[1, 1, 8, 8] x", f"y = {line} (x)")), path
    )
    with pytest.raises(TensorlangError):
        Model.load(path, train=False)(np.ones((1, 1, 8, 8), np.float32))


@pytest.mark.parametrize(
    "how",
    [
        'strides = [2], auto_pad = "SAME_UPPER"',
        "output_shape = [0, 8]",
        "output_shape = [8]",
        "pads = [0, 9, 0, 0]",
    ],
)
def test_transposed_convolutions_of_no_sizes(tmp_path, how) -> None:
    sizes = "float[1, 1, 3, 3] x, float[1, 1, 3, 3] w"
    path = tmp_path / "m.onnx"
    line = f"y = ConvTranspose <{how}> (x, w)"
    onnx.save(onnx.parser.parse_model(HEAD % (sizes, line)), path)
    with pytest.raises(TensorlangError):
        Model.load(path, train=False)
