"""Works that arithmetic bounds: products of matrices, and ResNet-50's convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.gpu import triton_peers
from benchmarks.gpu.works import Call, Sides, Stage, Work, close, sizes

_SIDE = 4096
_BATCH = 64
# channels and extent of the 3 x 3 convolutions of ResNet-50, all of stride 1
_IMAGES = ((64, 56), (128, 28), (256, 14), (512, 7))
_ERRORS = {"float32": 2e-5, "bfloat16": 2e-2}


def _side(stage: Stage) -> int:
    return max(_SIDE // stage.scale, 128)


def _dense(dtype: str) -> Any:
    def make(stage: Stage) -> Sides:
        from tensorlang.ops import nn

        torch, n = stage.torch, _side(stage)
        made = []
        for _ in range(stage.sets(3 * n * n * (4 if dtype == "float32" else 2))):
            x, w = (stage.normal(n, n, dtype=dtype) for _ in range(2))
            made.append((x, w, torch.empty_like(x), torch.empty_like(x)))

        def ours(arrays: Sequence[Any]) -> Call:
            x, w, out, _ = arrays
            return lambda: nn.dense(x, w, out=out, target=stage.target)

        def theirs(arrays: Sequence[Any]) -> Call:
            x, w, _, other = arrays
            return lambda: torch.matmul(x, w.T, out=other)

        def check() -> float:
            ours(made[0])()
            stage.wait()
            x, w, out, _ = made[0]
            return close(stage, out, x.double() @ w.double().T, _ERRORS[dtype])

        calls: dict[str, list[Call]] = {
            "tensorlang": [ours(arrays) for arrays in made],
            "cuBLAS": [theirs(arrays) for arrays in made],
        }
        if dtype == "bfloat16":
            for x, w, _, other in made:
                for name, found in triton_peers.matmul(stage, x, w, other).items():
                    calls.setdefault(name, []).extend(found)
        return Sides(calls, check)

    return make


def _conv(channels: int, extent: int) -> Any:
    def make(stage: Stage) -> Sides:
        from tensorlang.ops import nn

        torch = stage.torch
        shape = (_batch(stage), channels, extent, extent)
        window = (channels, channels, 3, 3)
        count = stage.sets(4 * _batch(stage) * channels * extent * extent)
        made = [
            (stage.normal(*shape, dtype="bfloat16"), _window(stage, window))
            for _ in range(count)
        ]
        out = torch.empty_like(made[0][0])
        last = [
            (
                x.to(memory_format=torch.channels_last),
                w.to(memory_format=torch.channels_last),
            )
            for x, w in made
        ]
        apply = torch.nn.functional.conv2d

        def ours(x: Any, w: Any) -> Call:
            return lambda: nn.conv2d(x, w, padding=1, out=out, target=stage.target)

        def theirs(x: Any, w: Any) -> Call:
            return lambda: apply(x, w, padding=1)

        def check() -> float:
            x, w = made[0]
            ours(x, w)()
            stage.wait()
            right = apply(x.float(), w.float(), padding=1)
            return close(stage, out, right, _ERRORS["bfloat16"])

        calls = {
            "tensorlang": [ours(*arrays) for arrays in made],
            "cuDNN": [theirs(*arrays) for arrays in made],
            "cuDNN, channels last": [theirs(*arrays) for arrays in last],
        }
        return Sides(calls, check)

    return make


def _batch(stage: Stage) -> int:
    return max(_BATCH // stage.scale, 1)


def _window(stage: Stage, shape: Sequence[int]) -> Any:
    return stage.normal(*shape, dtype="bfloat16") / (shape[1] * 9) ** 0.5


def _tuned_dense(dtype: str) -> Any:
    def tuned(stage: Stage) -> list[tuple[str, ...]]:
        shape = (_side(stage), _side(stage))
        return [("nn.dense", "--shape", sizes(shape, shape), "--dtype", dtype)]

    return tuned


def _tuned_conv(channels: int, extent: int) -> Any:
    def tuned(stage: Stage) -> list[tuple[str, ...]]:
        shape = (_batch(stage), channels, extent, extent)
        shapes = sizes(shape, (channels, channels, 3, 3))
        padded = ("--attr", "padding=1,1,1,1")
        return [("nn.conv2d", "--shape", shapes, "--dtype", "bf16", *padded)]

    return tuned


def _products(stage: Stage) -> int:
    return 2 * _side(stage) ** 3


def _windows(channels: int, extent: int) -> Any:
    return lambda stage: 2 * _batch(stage) * channels**2 * 9 * extent**2


WORKS = (
    Work(
        "dense f32 4096",
        _dense("float32"),
        operations=_products,
        tuned=_tuned_dense("f32"),
        wanted={"cuBLAS": 0.9},
    ),
    Work(
        "dense bf16 4096",
        _dense("bfloat16"),
        operations=_products,
        tuned=_tuned_dense("bf16"),
        wanted={"cuBLAS": 0.5},
    ),
    *(
        Work(
            f"conv 3x3 bf16 {channels}x{extent}",
            _conv(channels, extent),
            operations=_windows(channels, extent),
            tuned=_tuned_conv(channels, extent),
            wanted={"cuDNN": 0.5, "cuDNN, channels last": 0.5},
        )
        for channels, extent in _IMAGES
    ),
)
