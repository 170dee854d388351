"""Every operator is compiled for processors that are not here, and calls no helper.

A part of them, or with `--every-sample` all, in every element type: an hour.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice

import llvmlite.binding as llvm
import pytest

from tensorlang.codegen.llvm.render import render
from tensorlang.codegen.lower import lower
from tensorlang.errors import TensorlangError
from tensorlang.ops.kernels.building import default
from tensorlang.ops.operator import Operator
from tensorlang.ops.registry import operators
from tensorlang.runtime.cpu import pool
from tensorlang.runtime.cpu.llvm import compile_for
from tensorlang.targets import Target
from tensorlang.tuner.correctness.ragged import small_variants
from tensorlang.workload import Workload

_AVX2 = ("sse2", "sse4_1", "avx", "avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
_BF16 = (*_AVX512, "avx512_bf16")
X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
# LLVM's name -> the triple, and what Linux lists
PROCESSORS = {
    "x86-64": (X86, ("sse2",)),
    "nehalem": (X86, ("sse2", "sse4_1")),
    "sandybridge": (X86, ("sse2", "sse4_1", "avx")),
    "ivybridge": (X86, ("sse2", "sse4_1", "avx", "f16c")),
    **dict.fromkeys(("haswell", "znver1", "znver2", "znver3"), (X86, _AVX2)),
    **dict.fromkeys(("skylake-avx512", "cascadelake"), (X86, _AVX512)),
    **dict.fromkeys(("cooperlake", "znver4", "znver5"), (X86, _BF16)),
    "sapphirerapids": (X86, (*_BF16, "avx512_fp16")),
    "generic": (ARM, ("asimd",)),
    **dict.fromkeys(("neoverse-n1", "apple-m1"), (ARM, ("asimd", "asimdhp"))),
    "neoverse-v1": (ARM, ("asimd", "asimdhp", "sve", "bf16")),
}
# what a libm and libc of C99 have, and what the pool gives
PROVIDED = {"fma", "floor", "ceil", "trunc", "rint", "memcpy", "memset", "memmove"}
PROVIDED |= {f"{name}f" for name in ("floor", "ceil", "trunc", "rint")}
PROVIDED |= {*pool.SYMBOLS}
FLOATS, OTHERS = ("bf16", "f16"), ("f32", "f64", "i8", "i32", "i64", "u32", "bool")
PART = 64  # of the operators, one in so many for each processor
LIBRARY = [op for op in operators() if op.module.startswith("tensorlang.")]


def target(cpu: str) -> Target:
    """The processor, as schedules and code generation see it."""
    triple, features = PROCESSORS[cpu]
    wide = "avx512f" in features
    bits = 512 if wide else 256 if "avx" in features else 128
    return Target(
        device=cpu,
        cpu=cpu,
        arch=triple.partition("-")[0],
        features=features,
        threads=4,
        vector_bits=bits,
        vector_registers=16 if triple == X86 and not wide else 32,
    )


def workloads(op: Operator, dtype: str, *, odd: bool) -> Iterator[Workload]:
    """The usual shapes in one element type, or odd ones, the most wanted first."""
    if not op.dtypes or dtype in op.dtypes:
        workload = op.workload(dtypes=dtype)
        yield from (
            islice(small_variants(op, workload, "odd"), 4) if odd else (workload,)
        )


def undefined(code: bytes) -> set[str]:
    """Symbols that an ELF object leaves to others."""
    sections = llvm.ObjectFileRef.from_data(code).sections()
    data = {section.name(): bytes(section.data()) for section in sections}
    found = set()
    for at in range(24, len(data[b".symtab"]), 24):
        name, _, _, section = struct.unpack_from("<IBBH", data[b".symtab"], at)
        if section == 0:
            text = data[b".strtab"][name:]
            found.add(text[: text.index(b"\0")].decode())
    return found


def compiles(op: Operator, workload: Workload, cpu: str) -> bool:
    """Whether an operator takes these types and sizes; then it calls no helper."""
    there = target(cpu)
    try:
        scheduled = default(op, workload, there, {})[0].function
    except TensorlangError:
        return False
    text = render(lower(scheduled, there), there)
    code = compile_for(text, PROCESSORS[cpu][0], cpu)
    assert undefined(code) <= PROVIDED, (cpu, str(workload))
    return True


@pytest.mark.parametrize("cpu", PROCESSORS)
def test_operators_call_no_helper(cpu: str, request: pytest.FixtureRequest) -> None:
    every = request.config.getoption("--every-sample")
    first = list(PROCESSORS).index(cpu)
    for number, op in enumerate(LIBRARY if every else LIBRARY[first::PART]):
        narrow = FLOATS if every else FLOATS[number % 2 :][:1]
        found = (
            any(compiles(op, each, cpu) for each in workloads(op, dtype, odd=odd))
            for odd in (False, True)[: 1 + every]
            for dtype in (*narrow, *OTHERS)
        )
        assert any(list(found) if every else found), op.id


def test_helpers_are_seen() -> None:
    text = "define half @f(half %x) {\n  %y = fadd half %x, %x\n  ret half %y\n}"
    assert "__extendhfsf2" in undefined(compile_for(text, X86, "nehalem"))
