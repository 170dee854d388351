"""Small networks of the usual kinds, exported by PyTorch, run on our operators."""

import warnings

import numpy as np
import pytest

from tensorlang.layers import Model

torch = pytest.importorskip("torch", reason="the extra bench is not installed")
pytest.importorskip("onnx", reason="the extra onnx is not installed")
nn, F = torch.nn, torch.nn.functional


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        )
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.body = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        )
        self.down = nn.Conv2d(8, 16, 1, 2, bias=False)
        self.last = nn.Linear(16, 5)

    def forward(self, x):
        x = self.pool(self.stem(x))
        x = F.relu(self.down(F.relu(x + self.body(x))))
        return self.last(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Mobile(nn.Module):
    """Depthwise convolutions, squeeze and excitation, activations with corners."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.depth, self.point = nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Conv2d(8, 16, 1)
        self.less, self.more = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(16, 5)

    def forward(self, x):
        x = F.relu6(self.depth(F.hardswish(self.stem(x))))
        x = F.silu(self.point(x))
        share = self.more(F.relu(self.less(F.adaptive_avg_pool2d(x, 1))))
        return self.last(self.drop((x * F.hardsigmoid(share)).mean([2, 3])))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(11, 16), nn.LayerNorm(16)
        self.split, self.join = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, ids):
        x = self.table(ids)
        b, t, c = x.shape
        parts = self.split(self.norm(x)).chunk(3, -1)
        q, k, v = (part.view(b, t, 4, c // 4).transpose(1, 2) for part in parts)
        weights = (q @ k.transpose(-2, -1) / 2).softmax(-1)
        return x + self.join((weights @ v).transpose(1, 2).reshape(b, t, c))


class Enlarging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.down = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        x = F.relu(self.wide(x))
        return torch.sigmoid(self.last(torch.cat([x, self.up(self.down(x))], 1)))


class Shuffled(nn.Module):
    """Channels in another order, halves, slices, and what else is bent."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.slope = nn.Conv2d(3, 8, 1), nn.PReLU()

    def forward(self, x):
        x = self.slope(F.elu(self.first(x)))
        b, c, h, w = x.shape
        x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        left, right = x.chunk(2, 1)
        y = torch.where(left > 0, left, right * 2)[:, 1:3]
        return y.clamp(-1, 1), y.amax(1), y.mean(1).unsqueeze(1), x.argmax(1)


def images():
    return torch.randn(2, 3, 16, 16)


MAKES = {
    "residual": (Residual, images),
    "mobile": (Mobile, images),
    "attention": (Attention, lambda: torch.randint(0, 11, (2, 5))),
    "enlarging": (Enlarging, images),
    "shuffled": (Shuffled, images),
}
# the other exporter takes seconds a network
BOTH = [(name, False) for name in MAKES] + [("attention", True), ("shuffled", True)]


@pytest.mark.parametrize(("name", "dynamo"), BOTH)
def test_it_gives_the_same(tmp_path, name, dynamo) -> None:
    make, data = MAKES[name]
    torch.manual_seed(0)
    made, x, path = make().eval(), data(), str(tmp_path / "net.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            pytest.importorskip("onnxscript")
            sizes = ({0: torch.export.Dim("batch", min=1, max=64)},)
            torch.onnx.export(made, (x,), path, dynamo=True, dynamic_shapes=sizes)
        else:
            sizes = {"x": {0: "batch"}}
            given = {"input_names": ["x"], "dynamic_axes": sizes}
            torch.onnx.export(made, (x,), path, dynamo=False, **given)
    model = Model.load(path, train=False)
    model.save(tmp_path / "ours.onnx")
    model = Model.load(tmp_path / "ours.onnx", train=False)
    for given in (x, torch.cat([x, x, x])):
        with torch.no_grad():
            wanted = made(given)
        several = wanted if isinstance(wanted, tuple) else (wanted,)
        found = model(given.numpy())
        for each, other in zip(
            found if isinstance(found, tuple) else (found,), several, strict=True
        ):
            np.testing.assert_allclose(each, other.numpy(), rtol=1e-4, atol=1e-6)
