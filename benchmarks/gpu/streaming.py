"""Memory-bound works: copies, elementwise, dropout, Adam, rows, transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.gpu import triton_peers
from benchmarks.gpu.works import MIB, Call, Sides, Stage, Work, checks, close, sizes

_BYTES = 256 * MIB  # size of the main array
_COLUMNS = 4096


def _count(stage: Stage) -> int:
    return _BYTES // 4 // stage.scale


def _rows(stage: Stage) -> tuple[int, int]:
    columns = max(_COLUMNS // (8 if stage.scale > 1 else 1), 1)
    return max(_count(stage) // columns, 8), columns


def _copy(stage: Stage) -> Call:
    source = stage.normal(_count(stage))
    target = stage.torch.empty_like(source)
    return lambda: target.copy_(source)


def _gelu(stage: Stage) -> Sides:
    from tensorlang.ops import nn

    torch = stage.torch
    x = stage.normal(_count(stage))
    out = torch.empty_like(x)
    theirs = torch.nn.functional.gelu
    calls: dict[str, list[Call]] = {
        "tensorlang": [lambda: nn.gelu(x, out=out, target=stage.target)],
        "torch": [lambda: theirs(x)],
        "copy": [_copy(stage)],
    }
    calls |= triton_peers.gelu(stage, x, other := torch.empty_like(x))
    return Sides(
        calls, _all(stage, calls, lambda: theirs(x.double()), 1e-6, out, other)
    )


def _all(  # noqa: PLR0917 - like `checks`
    stage: Stage,
    calls: dict[str, list[Call]],
    right: Call,
    allowed: float,
    out: Any,
    other: Any,
) -> dict[str, Any]:
    """Checks of all sides: ours writes `out`, Triton's `other`, the rest return."""
    written = {"tensorlang": out, "triton": other}
    sides = {
        name: (made[0], written.get(name))
        for name, made in calls.items()
        if name != "copy"
    }
    return checks(stage, right, allowed, **sides)


def _multiply(stage: Stage) -> Sides:
    from tensorlang.ops import math

    torch = stage.torch
    a, b = stage.normal(_count(stage)), stage.normal(_count(stage))
    out, other = torch.empty_like(a), torch.empty_like(a)

    calls: dict[str, list[Call]] = {
        "tensorlang": [lambda: math.multiply(a, b, out=out, target=stage.target)],
        "torch": [lambda: torch.mul(a, b, out=other)],
        "copy": [_copy(stage)],
    }
    found = _all(stage, calls, lambda: a * b, 1e-9, out, other)
    return Sides(calls, found, {"copy": 3 / 2})


def _dropout(stage: Stage) -> Sides:
    from tensorlang.ops import nn, random

    x = stage.normal(_count(stage))
    out = stage.torch.empty_like(x)
    key = random.key(3)
    theirs = stage.torch.nn.functional.dropout

    def ours() -> Any:
        return nn.dropout(x, 0.5, key=key.clone(), out=out, target=stage.target)

    def check() -> float:
        out.fill_(float("nan"))
        ours()
        stage.wait()
        kept = out != 0
        share = abs(float(kept.double().mean()) - 0.5) / 0.01
        return max(share, close(stage, out[kept], 2 * x[kept], 1e-9))

    calls: dict[str, list[Call]] = {
        "tensorlang": [ours],
        "torch": [lambda: theirs(x, 0.5, True)],
        "copy": [_copy(stage)],
    }
    return Sides(calls, {"tensorlang": check})


def _adam(stage: Stage) -> Sides:
    from tensorlang.ops import optim

    torch = stage.torch
    mine = [stage.normal(_count(stage)) for _ in range(4)]
    mine[3] = mine[3].abs()
    other = torch.nn.Parameter(mine[0].clone())
    other.grad = mine[1].clone()
    fused = {"fused": True} if stage.device == "cuda" else {}
    theirs = torch.optim.Adam([other], lr=1e-3, **fused)
    steps = iter(range(1, 1 << 30))

    def ours(step: int | None = None) -> None:
        number = next(steps) if step is None else step
        optim.adam(*mine, step=number, lr=1e-3, target=stage.target)

    def check() -> float:
        start = [array.clone() for array in mine]
        start[2].zero_()
        start[3].zero_()
        own = torch.nn.Parameter(start[0].clone())
        own.grad = start[1].clone()
        optim.adam(*start, step=1, lr=1e-3, target=stage.target)
        torch.optim.Adam([own], lr=1e-3, **fused).step()
        stage.wait()
        return close(stage, start[0], own.detach(), 1e-6)

    calls: dict[str, list[Call]] = {
        "tensorlang": [ours],
        "torch, fused": [theirs.step],
        "copy": [_copy(stage)],
    }
    return Sides(calls, {"tensorlang": check}, {"copy": 7 / 2})


def _softmax(stage: Stage) -> Sides:
    from tensorlang.ops import nn

    torch = stage.torch
    x = stage.normal(*_rows(stage))
    out, other = torch.empty_like(x), torch.empty_like(x)
    calls: dict[str, list[Call]] = {
        "tensorlang": [lambda: nn.softmax(x, out=out, target=stage.target)],
        "torch": [lambda: torch.softmax(x, -1, out=other)],
        "copy": [_copy(stage)],
    }
    calls |= triton_peers.softmax(stage, x, other)
    right = lambda: torch.softmax(x.double(), -1)  # noqa: E731 - used once
    return Sides(calls, _all(stage, calls, right, 1e-5, out, other))


def _layer_norm(stage: Stage) -> Sides:
    from tensorlang.ops import nn

    torch = stage.torch
    x = stage.normal(*_rows(stage))
    weight, bias = stage.normal(x.shape[1]), stage.normal(x.shape[1])
    out = torch.empty_like(x)

    given = (x, weight, bias)

    def theirs(x: Any, weight: Any, bias: Any) -> Any:
        return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias)

    def ours() -> Any:
        return nn.layer_norm(*given, out=out, target=stage.target)

    calls: dict[str, list[Call]] = {
        "tensorlang": [ours],
        "torch": [lambda: theirs(*given)],
        "copy": [_copy(stage)],
    }
    right = lambda: theirs(*(each.double() for each in given))  # noqa: E731
    return Sides(calls, _all(stage, calls, right, 1e-5, out, None))


def _unary(ours: Callable[[Stage, Any, Any], Any], theirs: Call, allowed: float) -> Any:
    """A work that reads rows of numbers once and writes as much, at most.

    Args:
        ours: Our call, of a stage, an array and an output.
        theirs: PyTorch's, of a tensor.
        allowed: The permitted error.
    """

    def make(stage: Stage) -> Sides:
        x = stage.normal(*_rows(stage))
        out = stage.torch.empty_like(theirs(x))
        calls: dict[str, list[Call]] = {
            "tensorlang": [lambda: ours(stage, x, out)],
            "torch": [lambda: theirs(x)],
            "copy": [_copy(stage)],
        }
        found = _all(stage, calls, lambda: theirs(x.double()), allowed, out, None)
        share = (x.nbytes + out.nbytes) / (2 * x.nbytes)
        return Sides(calls, found, {"copy": share})

    return make


def _transpose(stage: Stage, x: Any, out: Any) -> Any:
    from tensorlang.ops import nn

    return nn.transpose(x, (1, 0), out=out, target=stage.target)


def _sum(stage: Stage, x: Any, out: Any) -> Any:
    from tensorlang.ops import math

    return math.sum(x, axis=0, out=out, target=stage.target)


def _cumsum(stage: Stage, x: Any, out: Any) -> Any:
    from tensorlang.ops import math

    return math.cumsum(x, out=out, target=stage.target)


def _embedding(stage: Stage) -> Sides:
    from tensorlang.ops import nn

    torch = stage.torch
    table = stage.normal(*_rows(stage))
    ids = torch.randint(table.shape[0], (table.shape[0],), device=stage.device)
    out = torch.empty_like(table)
    theirs = torch.nn.functional.embedding
    calls: dict[str, list[Call]] = {
        "tensorlang": [lambda: nn.embedding(ids, table, out=out, target=stage.target)],
        "torch": [lambda: theirs(ids, table)],
        "copy": [_copy(stage)],
    }
    return Sides(calls, _all(stage, calls, lambda: theirs(ids, table), 1e-9, out, None))


def _sort(stage: Stage) -> Sides:
    from tensorlang.ops import math

    torch = stage.torch
    x = stage.normal(_count(stage) // 4)
    out = torch.empty_like(x)
    calls: dict[str, list[Call]] = {
        "tensorlang": [lambda: math.sort(x, out=out, target=stage.target)],
        "torch": [lambda: torch.sort(x)[0]],
    }
    return Sides(calls, _all(stage, calls, lambda: torch.sort(x)[0], 1e-9, out, None))


def _flat(op: str, arrays: int) -> Any:
    """Tuning arguments of an operator on flat arrays."""
    return lambda stage: [(op, "--shape", sizes(*[(_count(stage),)] * arrays))]


def _square(op: str) -> Any:
    return lambda stage: [(op, "--shape", sizes(_rows(stage)))]


def _normed(stage: Stage) -> list[tuple[str, ...]]:
    rows = _rows(stage)
    return [("nn.layer_norm", "--shape", sizes(rows, rows[1:], rows[1:]))]


def _times(arrays: int) -> Any:
    return lambda stage: arrays * 4 * _count(stage)


_AT_LEAST = {"copy": 0.95, "torch": 1.0}
WORKS = (
    Work(
        "Adam f32",
        _adam,
        _times(7),
        tuned=_flat("optim.adam", 4),
        wanted={"copy": 0.95, "torch, fused": 1.0},
    ),
    Work(
        "softmax f32",
        _softmax,
        _times(2),
        tuned=_square("nn.softmax"),
        wanted=_AT_LEAST,
    ),
    Work("layer_norm f32", _layer_norm, _times(2), tuned=_normed, wanted=_AT_LEAST),
    Work(
        "dropout f32",
        _dropout,
        _times(2),
        tuned=_flat("nn.dropout", 1),
        wanted=_AT_LEAST,
    ),
    Work("gelu f32", _gelu, _times(2), tuned=_flat("nn.gelu", 1), wanted=_AT_LEAST),
    Work(
        "multiply f32",
        _multiply,
        _times(3),
        tuned=_flat("math.multiply", 2),
        wanted=_AT_LEAST,
    ),
    Work(
        "transpose f32",
        _unary(_transpose, lambda x: x.T.contiguous(), 1e-9),
        _times(2),
        wanted=_AT_LEAST,
    ),
    Work(
        "sum of columns f32",
        _unary(_sum, lambda x: x.sum(0), 1e-5),
        _times(1),
        wanted=_AT_LEAST,
    ),
    Work(
        "cumsum f32",
        _unary(_cumsum, lambda x: x.cumsum(-1), 1e-5),
        _times(2),
        wanted=_AT_LEAST,
    ),
    Work("embedding f32", _embedding, _times(2), wanted=_AT_LEAST),
    Work("sort f32", _sort, wanted={"torch": 1.0}),
)
