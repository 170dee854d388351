"""Works measured on a GPU: sizes, sides and limits.

A side maps a `Stage` to calls, one per set of arrays, that queue their work and return;
`Stage.wait` waits for all. Before timing, each side's result is checked, in memory that
was filled with NaNs.
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
        target: The target, such as `cuda`.
        scale: Divisor of large extents; 1 on a GPU, more for a rehearsal without one.
        last: The last JAX result; JAX queues on a thread of its own, so the device may
            be idle before it starts.
    """

    target: str = "cuda"
    scale: int = 1
    last: Any = None

    @property
    def device(self) -> str:
        """PyTorch's name of the device; a rehearsal has its tensors on the CPU."""
        return "cuda" if self.scale == 1 else "cpu"

    @cached_property
    def torch(self) -> Any:
        """PyTorch, without TF32 and with cuDNN's autotuning."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(1)
        return torch

    def wait(self) -> None:
        """Wait for all queued work."""
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
        """The number of array sets that exceeds any L2 cache four times."""
        wanted = 512 * MIB // self.scale
        return max(1, min(16, -(-wanted // max(bytes_of_one, 1))))


@dataclass(frozen=True)
class Sides:
    """Calls by side, with their correctness checks.

    Attributes:
        calls: Each side's calls, one per set of arrays.
        checks: The error of a side's result over the permitted error.
        shares: Our work as a fraction of a side's, where different: for a copy, our
            bytes over those it moves.
    """

    calls: Mapping[str, Sequence[Call]]
    checks: Mapping[str, Callable[[], float]]
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """A work to measure.

    Attributes:
        name: The work's name.
        make: Creates its sides for a stage.
        moved: Minimum bytes read and written per call.
        operations: Floating-point or integer operations per call.
        limit: The device limit of these operations: `floats`, `products` or `integers`.
        tuned: Arguments of `tlang tune` for its workloads.
        weight: Its relative share of the tuning time.
        queued: Whether to time many queued calls by the host's clock: for sides whose
            streams take no events of ours, or to measure host overhead.
        wanted: The required ratio, by side.
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
    """Checks by side.

    Args:
        stage: The stage.
        right: Computes the expected result, in 64 bits where that is more precise.
        allowed: The permitted error relative to the largest element.
        sides: A side's call and its output; None if it returns its result.
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
    """The error over what is permitted, relative to the largest element."""
    torch = stage.torch
    mine = torch.as_tensor(ours, device=stage.device).double()
    other = torch.as_tensor(theirs, device=stage.device).double()
    size = float(other.abs().max()) or 1.0
    error = float((mine - other).abs().max()) / size
    return float("inf") if error != error else error / allowed  # noqa: PLR0124 - NaN


def sizes(*shapes: Sequence[int]) -> str:
    """Shapes in command-line syntax."""
    return ",".join("x".join(map(str, shape)) for shape in shapes)
