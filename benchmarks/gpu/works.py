"""What is measured on a GPU: each work with its sizes, its sides, and its limit.

A side is a function from a `Stage` to calls, one for each set of arrays, that queue
their work and return; `Stage.wait` ends when all is done. Before a work is timed, each
side's result is held against the right one, in memory that was filled with NaNs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

Call = Callable[[], object]
MIB = 1 << 20


@dataclass
class Stage:
    """Where a work is measured.

    Attributes:
        target: tensorlang's name of it, such as `cuda`.
        scale: What large extents are divided by; 1 on a GPU, more for a dry run.
        last: What JAX was asked for last; it queues on a thread of its own, so that
            the device may be idle before it has begun.
    """

    target: str = "cuda"
    scale: int = 1
    last: Any = None

    @property
    def device(self) -> str:
        """PyTorch's name of it."""
        return "cuda" if self.target.startswith("cuda") else "cpu"

    @cached_property
    def torch(self) -> Any:
        """PyTorch, with 32-bit products in 32 bits and the fastest convolutions."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(1)
        return torch

    def wait(self) -> None:
        """Until all that was queued is done."""
        if self.last is not None:
            self.last.block_until_ready()
            self.last = None
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def normal(self, *shape: int, dtype: str = "float32") -> Any:
        """Normal random numbers as a tensor on the device."""
        torch = self.torch
        made = torch.randn(shape, dtype=torch.float32, device=self.device)
        return made.to(getattr(torch, dtype))

    def sets(self, bytes_of_one: int) -> int:
        """How many sets of arrays are four times any second-level cache."""
        wanted = 512 * MIB // self.scale
        return max(1, min(16, -(-wanted // max(bytes_of_one, 1))))


@dataclass(frozen=True)
class Sides:
    """Calls by the name of their side, and checks that each is right.

    Attributes:
        calls: Each side's, one for each set of arrays.
        checks: The error of a side's result, over what is allowed.
        shares: How much of a side's work ours amounts to, where it is not the same:
            of a copy, the bytes of ours over those that it moves.
    """

    calls: Mapping[str, Sequence[Call]]
    checks: Mapping[str, Callable[[], float]]
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """A work that is measured.

    Attributes:
        name: Of the work.
        make: Its sides on a stage.
        moved: Bytes that one call reads and writes at least, by the stage.
        operations: Floating-point or integer operations of one call, by the stage.
        limit: Which of the device's limits these operations have: `floats`, `products`
            or `integers`.
        tuned: What to tune for it: arguments of `tlang tune`, by the stage.
        weight: Its share of the time for tuning, beside the others'.
        queued: Whether it is timed by this machine's clock, many calls queued at once:
            where a side computes on streams that take no marks of ours, or where the
            host's part of a call is what is wanted.
        wanted: The ratio asked for, by the side that ours is compared with.
    """

    name: str
    make: Callable[[Stage], Sides]
    moved: Callable[[Stage], int] = lambda _: 0
    operations: Callable[[Stage], int] = lambda _: 0
    limit: str = "floats"
    tuned: Callable[[Stage], Sequence[Sequence[str]]] = lambda _: ()
    weight: float = 1.0
    queued: bool = False
    wanted: Mapping[str, float] = field(default_factory=dict)


def checks(
    stage: Stage,
    right: Callable[[], Any],
    allowed: float,
    **sides: tuple[Call, Any],
) -> dict[str, Callable[[], float]]:
    """Checks of sides, by the name of each.

    Args:
        stage: Where.
        right: Makes what all of them should give, in 64 bits where that says more.
        allowed: The error that each may have, of the largest element.
        sides: A side's call, and what it writes; None where it returns its result.
    """
    wanted = cache(right)

    def check(call: Call, out: Any) -> Callable[[], float]:
        def run() -> float:
            if out is not None and out.is_floating_point():
                out.fill_(float("nan"))
            given = call()
            stage.wait()
            return close(stage, given if out is None else out, wanted(), allowed)

        return run

    return {name: check(*side) for name, side in sides.items()}


def close(stage: Stage, ours: Any, theirs: Any, allowed: float) -> float:
    """The error of ours over what is allowed of the largest element."""
    torch = stage.torch
    mine = torch.as_tensor(ours, device=stage.device).double()
    other = torch.as_tensor(theirs, device=stage.device).double()
    size = float(other.abs().max()) or 1.0
    error = float((mine - other).abs().max()) / size
    return float("inf") if error != error else error / allowed  # noqa: PLR0124 - NaN


def sizes(*shapes: Sequence[int]) -> str:
    """Shapes as the command line takes them."""
    return ",".join("x".join(map(str, shape)) for shape in shapes)
