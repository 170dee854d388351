"""Compute-bound works: matrix products and ResNet-50's convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu import triton_peers
from benchmarks.gpu.works import Call, Sides, Stage, Work, checks, sizes

_BATCH = 64
# channels and extents of ResNet-50's 3 x 3 convolutions of stride 1
_IMAGES = ((64, 56), (128, 28), (256, 14), (512, 7))
_ERRORS = {"float32": 2e-5, "bfloat16": 2e-2}
_LAST = "cuDNN, channels last"
_PLAIN = f"{_LAST}, weights as ours"


def _scaled(side: int, stage: Stage) -> int:
    return max(side // stage.scale, 128)


def _dense(dtype: str, side: int) -> Any:
    def make(stage: Stage) -> Sides:
        from tensorlang.ops import nn

        torch, n = stage.torch, _scaled(side, stage)
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

        calls: dict[str, list[Call]] = {
            "tensorlang": [ours(arrays) for arrays in made],
            "cuBLAS": [theirs(arrays) for arrays in made],
        }
        if dtype == "bfloat16":
            for x, w, _, other in made:
                for name, found in triton_peers.matmul(stage, x, w, other).items():
                    calls.setdefault(name, []).extend(found)
        x, w, out, other = made[0]
        written = {name: (made_[0], other) for name, made_ in calls.items()}
        written["tensorlang"] = (calls["tensorlang"][0], out)
        right = lambda: x.double() @ w.double().T  # noqa: E731 - used once
        return Sides(calls, checks(stage, right, _ERRORS[dtype], **written))

    return make


def _dense_gradient(side: int) -> Any:
    def make(stage: Stage) -> Sides:
        from tensorlang.ops import nn

        torch, n = stage.torch, _scaled(side, stage)
        dy, x, w = (stage.normal(n, n, dtype="bfloat16") for _ in range(3))
        mine, others = (
            (torch.empty_like(x), torch.empty_like(w), dy.new_empty(n))
            for _ in range(2)
        )

        def ours() -> Any:
            nn.dense_grad(dy, x, w, out=mine, target=stage.target)
            return mine[1]

        def theirs() -> Any:
            torch.matmul(dy, w, out=others[0])
            torch.matmul(dy.T, x, out=others[1])
            torch.sum(dy, 0, out=others[2])
            return others[1]

        sides: dict[str, tuple[Call, Any]] = {
            "tensorlang": (ours, None),
            "cuBLAS": (theirs, None),
        }
        right = lambda: dy.double().T @ x.double()  # noqa: E731 - used once
        found = checks(stage, right, _ERRORS["bfloat16"], **sides)
        return Sides({name: [call] for name, (call, _) in sides.items()}, found)

    return make


def _conv(channels: int, extent: int) -> Any:
    def make(stage: Stage) -> Sides:
        torch = stage.torch
        shape = _image(stage, channels, extent)
        window = (shape[1], shape[1], 3, 3)
        count = stage.sets(4 * math.prod(shape))
        made = [
            (stage.normal(*shape, dtype="bfloat16"), _window(stage, window))
            for _ in range(count)
        ]
        last = [
            tuple(each.to(memory_format=torch.channels_last) for each in arrays)
            for arrays in made
        ]
        apply = torch.nn.functional.conv2d

        def theirs(x: Any, w: Any) -> Call:
            return lambda: apply(x, w, padding=1)

        # the same image in channels-last layout, which is another shape for us
        images = [
            (x.permute(0, 2, 3, 1), w)
            for (x, _), (_, w) in zip(last, made, strict=True)
        ]
        ours, out = _ours(stage, images, "NHWC")
        first, other = _ours(stage, made, "NCHW")
        calls = {
            "tensorlang": ours,
            "tensorlang, NCHW": first,
            "cuDNN": [theirs(*arrays) for arrays in made],
            _LAST: [theirs(*arrays) for arrays in last],
            _PLAIN: [theirs(x, w) for (x, _), (_, w) in zip(last, made, strict=True)],
        }
        x, w = made[0]
        right = lambda: apply(x.float(), w.float(), padding=1)  # noqa: E731
        seen = {
            "tensorlang": (lambda: _first(ours[0](), out), None),
            "tensorlang, NCHW": (first[0], other),
            "cuDNN": (calls["cuDNN"][0], None),
            _LAST: (calls[_LAST][0], None),
            _PLAIN: (calls[_PLAIN][0], None),
        }
        return Sides(calls, checks(stage, right, _ERRORS["bfloat16"], **seen))

    return make


def _ours(
    stage: Stage, images: Sequence[tuple[Any, Any]], layout: str
) -> tuple[list[Call], Any]:
    """Our calls for images in a layout, and their output."""
    from tensorlang.ops import nn

    out = stage.torch.full_like(images[0][0], float("nan"))
    assert out.is_contiguous()

    def call(x: Any, w: Any) -> Call:
        return lambda: nn.conv2d(
            x, w, padding=1, layout=layout, out=out, target=stage.target
        )

    return [call(x, w) for x, w in images], out


def _first(_: object, out: Any) -> Any:
    """A channels-last result in PyTorch's order of dimensions."""
    return out.permute(0, 3, 1, 2)


def _image(stage: Stage, channels: int, extent: int) -> tuple[int, ...]:
    """An image's shape; a rehearsal has one small one."""
    if stage.scale > 1:
        return (1, 64, 7, 7)
    return (_BATCH, channels, extent, extent)


def _window(stage: Stage, shape: Sequence[int]) -> Any:
    return stage.normal(*shape, dtype="bfloat16") / (shape[1] * 9) ** 0.5


def _tuned_dense(dtype: str, side: int) -> Any:
    def tuned(stage: Stage) -> list[tuple[str, ...]]:
        shape = (_scaled(side, stage), _scaled(side, stage))
        return [("nn.dense", "--shape", sizes(shape, shape), "--dtype", dtype)]

    return tuned


def _tuned_gradient(side: int) -> Any:
    def tuned(stage: Stage) -> list[tuple[str, ...]]:
        shape = (_scaled(side, stage), _scaled(side, stage))
        return [("nn.dense_grad", "--shape", sizes(*[shape] * 3), "--dtype", "bf16")]

    return tuned


def _tuned_conv(channels: int, extent: int) -> Any:
    def tuned(stage: Stage) -> list[tuple[str, ...]]:
        batch, inner, height, width = _image(stage, channels, extent)
        shapes = sizes((batch, height, width, inner), (inner, inner, 3, 3))
        how = ("--attr", "padding=1,1,1,1", "--attr", "layout=NHWC")
        return [("nn.conv2d", "--shape", shapes, "--dtype", "bf16", *how)]

    return tuned


def _products(side: int) -> Any:
    return lambda stage: 2 * _scaled(side, stage) ** 3


def _windows(channels: int, extent: int) -> Any:
    def operations(stage: Stage) -> int:
        shape = _image(stage, channels, extent)
        return 2 * 9 * shape[1] * math.prod(shape)

    return operations


WORKS = (
    *(
        Work(
            f"dense bf16 {side}",
            _dense("bfloat16", side),
            operations=_products(side),
            limit="products",
            # the larger one runs with the record of the other: its products take the
            # host minutes to check
            tuned=_tuned_dense("bf16", 4096),
            weight=weight,
            wanted={"cuBLAS": 1.0},
        )
        for side, weight in ((4096, 4.0), (8192, 2.0))
    ),
    Work(
        "gradient of dense bf16 4096",
        _dense_gradient(4096),
        operations=lambda stage: 2 * _products(4096)(stage),
        limit="products",
        tuned=_tuned_gradient(4096),
        weight=2.0,
        wanted={"cuBLAS": 1.0},
    ),
    Work(
        "dense f32 4096",
        _dense("float32", 4096),
        operations=_products(4096),
        tuned=_tuned_dense("f32", 4096),
        weight=4.0,
        wanted={"cuBLAS": 0.95},
    ),
    *(
        Work(
            f"conv 3x3 bf16 {channels}x{extent}",
            _conv(channels, extent),
            operations=_windows(channels, extent),
            limit="products",
            tuned=_tuned_conv(channels, extent),
            weight=2.0,
            wanted={"cuDNN": 1.0, _LAST: 0.95, _PLAIN: 1.0},
        )
        for channels, extent in _IMAGES
    ),
)
