"""GridSample, DFT and STFT, against onnxruntime, NumPy and PyTorch."""

import numpy as np
import pytest

from tensorlang.errors import TensorlangError
from tensorlang.layers import Model

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
torch = pytest.importorskip("torch")
RNG = np.random.default_rng(12)
HEAD = '<ir_version: 9, opset_import: ["" : %d]> m (%s) => (%s) {%s}'


@pytest.fixture
def load(tmp_path):
    def loaded(opset, takes, gives, line):
        model = onnx.parser.parse_model(HEAD % (opset, takes, gives, line))
        onnx.save(model, tmp_path / "m.onnx")
        return Model.load(tmp_path / "m.onnx", train=False)

    return loaded


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize(
    "how",
    [
        f'mode = "{mode}", padding_mode = "{padding}"'
        for mode in ("nearest", "bilinear", "bicubic")
        for padding in ("zeros", "border", "reflection")
    ],
)
def test_images_at_places(load, tmp_path, how, corners) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = load(
        16,
        "float[2, 3, 5, 7] x, float[2, 4, 6, 2] g",
        "float[a, b, c, d] y",
        f"y = GridSample <{how}, align_corners = {corners}> (x, g)",
    )
    x = RNG.normal(size=(2, 3, 5, 7)).astype(np.float32)
    g = RNG.uniform(-1.6, 1.6, (2, 4, 6, 2)).astype(np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (wanted,) = session.run(None, {"x": x, "g": g})
    np.testing.assert_allclose(model(x, g), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", ["", "l"])
def test_a_transform_and_back(load, length) -> None:
    model = load(
        20,
        "float[3, 10, 1] x, int64 l",
        "float[a, b, c] y, float[a, g, c] u, float[d, e, f] z",
        f"""u = DFT (x, {length})
        y = DFT <onesided = 1> (x, {length})
        z = DFT <onesided = 1, inverse = 1> (y, {length})""",
    )
    x = RNG.normal(size=(3, 10, 1)).astype(np.float32)
    count = 8 if length else 10
    y, u, z = model(x, np.array(count))
    for found, way in ((y, np.fft.rfft), (u, np.fft.fft)):
        np.testing.assert_allclose(
            found[..., 0] + 1j * found[..., 1], way(x[..., 0], count), atol=1e-5
        )
    np.testing.assert_allclose(z[..., 0], x[:, :count, 0], rtol=0, atol=1e-5)


def test_windows_of_a_signal(load) -> None:
    model = load(
        17,
        "float[2, 50, 1] x, float[16] w",
        "float[a, b, c, d] y",
        "s = Constant <value = int64 {5}> ()  y = STFT (x, s, w)",
    )
    x = RNG.normal(size=(2, 50, 1)).astype(np.float32)
    w = np.hanning(16).astype(np.float32)
    wanted = torch.stft(
        torch.tensor(x[..., 0]), 16, 5, 16, torch.tensor(w), False, return_complex=True
    )
    found = model(x, w)
    np.testing.assert_allclose(
        found[..., 0] + 1j * found[..., 1], wanted.numpy().transpose(0, 2, 1), atol=1e-5
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("y = DFT (x)", "last dimension is 1 or 2"),
        ("y = DFT <inverse = 1> (x)", "inverse=1 is supported with onesided=1 only"),
    ],
)
def test_what_is_refused(load, line, complaint) -> None:
    with pytest.raises(TensorlangError, match=complaint):
        load(20, "float[3, 10, 3] x", "float[a, b, c] y", line)(
            np.ones((3, 10, 3), np.float32)
        )
