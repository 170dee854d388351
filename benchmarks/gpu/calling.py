"""Host overheads of calls: tiny workloads, and arrays in host memory."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu import triton_peers
from benchmarks.gpu.works import MIB, Call, Sides, Stage, Work, checks

_SMALL = 1024


def _small(stage: Stage) -> Sides:
    from tensorlang.ops import nn

    torch = stage.torch
    x = stage.normal(_SMALL)
    out, other = torch.empty_like(x), torch.empty_like(x)
    kernel, arguments, _ = nn.gelu.prepare(x, out=out, target=stage.target)

    def repeated() -> Any:
        kernel(*arguments)

    calls: dict[str, list[Call]] = {
        "tensorlang": [lambda: nn.gelu(x, out=out, target=stage.target)],
        "tensorlang, prepared": [repeated],
        "torch": [lambda: torch.nn.functional.gelu(x)],
    }
    calls |= triton_peers.gelu(stage, x, other)
    right = lambda: torch.nn.functional.gelu(x.double())  # noqa: E731 - used once
    written = {"tensorlang": out, "tensorlang, prepared": out, "triton": other}
    seen = {name: (made[0], written.get(name)) for name, made in calls.items()}
    return Sides(calls, checks(stage, right, 1e-6, **seen))


def _host(stage: Stage) -> Sides:
    """Copies to and from the GPU per call, from pageable memory."""
    from tensorlang.ops import nn

    torch = stage.torch
    x = torch.randn(_large(stage))
    given, out = x.numpy(), torch.empty_like(x)

    def theirs() -> Any:
        return torch.nn.functional.gelu(x.to(stage.device)).cpu()

    def ours() -> Any:
        return nn.gelu(given, out=out.numpy(), target=stage.target)

    right = lambda: torch.nn.functional.gelu(x.double())  # noqa: E731 - used once
    found = checks(stage, right, 1e-6, tensorlang=(ours, out), torch=(theirs, None))
    return Sides({"tensorlang": [ours], "torch": [theirs]}, found)


def _large(stage: Stage) -> int:
    return 16 * MIB // stage.scale


WORKS = (
    Work("a call of 1024 elements", _small, queued=True),
    Work(
        "gelu f32 of host arrays",
        _host,
        moved=lambda stage: 8 * _large(stage),
        queued=True,
    ),
)
