"""`tlang targets`: which targets are available, and how to get the missing ones."""

from __future__ import annotations

import re
from typing import Final

import typer

from tensorlang import targets as machines
from tensorlang.cli import console, document
from tensorlang.cli.quantities import Bytes
from tensorlang.runtime.cuda import toolchain
from tensorlang.targets import Target

app = typer.Typer(add_completion=False)

# of some hundred CPU flags, those that affect code generation
_SHOWN: Final = re.compile(
    r"amx|avx|bf16|bmi|f16c|fma|gfni|asimd|neon|popcnt|sha|sse4|sve|vaes|vpclmul"
)


@app.command()
def targets() -> None:
    """List devices, features, caches and threads, and what is missing.

    Examples:
        tlang targets
        tlang targets --json
    """
    for kind, problem in machines.availability().items():
        lines = {} if problem else _described(machines.get(kind))
        if kind == "cuda":
            lines["compilers"] = _compilers()
        document.found(kind, {"missing": problem or None, **lines})
        console.say(f"{kind}: {'missing' if problem else 'present'}")
        if problem:
            console.paragraph(problem, "  ")
        for name, text in lines.items():
            console.paragraph(f"{name:<13}{text}", "  ", hanging=13)


def _compilers() -> str:
    """CUDA's compilers and architectures, or what is missing."""
    if lacking := toolchain.missing():
        return f"missing: {lacking}"
    return f"{toolchain.versions()}; for {', '.join(machines.ARCHITECTURES)}"


def _described(target: Target) -> dict[str, str]:
    if target.kind != "llvm":
        return _device(target)
    caches = ((1, target.l1_bytes), (2, target.l2_bytes), (3, target.l3_bytes))
    return {
        "device": target.device,
        "architecture": f"{target.arch} ({target.cpu})",
        "vectors": f"{target.vector_registers} registers of {target.vector_bits} bits",
        "features": " ".join(filter(_SHOWN.match, target.features)) or "none",
        "caches": ", ".join(f"L{level} {Bytes(size)}" for level, size in caches if size)
        or "unknown",
        "threads": str(target.threads),
        "fingerprint": target.fingerprint,
    }


def _device(target: Target) -> dict[str, str]:
    """A SIMT device, whose kernels are launched as blocks of threads."""
    return {
        "device": target.device,
        "architecture": target.arch,
        "processors": str(target.threads),
        "a block": f"up to {target.block_threads} threads, which share "
        f"{Bytes(target.shared_bytes)}",
        "driver": target.driver or "unknown",
        "fingerprint": target.fingerprint,
    }
