"""What a call costs the host: arrays so small that the device has next to no work."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu import triton_peers
from benchmarks.gpu.works import Call, Sides, Stage, Work, checks

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
    right = lambda: torch.nn.functional.gelu(x.double())  # noqa: E731 - for one use
    written = {"tensorlang": out, "tensorlang, prepared": out, "triton": other}
    seen = {name: (made[0], written.get(name)) for name, made in calls.items()}
    return Sides(calls, checks(stage, right, 1e-6, **seen))


WORKS = (Work("a call of 1024 elements", _small, queued=True),)
