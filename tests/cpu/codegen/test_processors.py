"""Every operator is compiled for processors that are not here, and calls no helper.

Some of them a run, others with `-m every_processor`: all, in every element type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import llvmlite.binding as llvm
import pytest

from tensorlang.codegen.llvm.render import render
from tensorlang.codegen.lower import lower
from tensorlang.errors import TensorlangError
from tensorlang.ops.building import default
from tensorlang.ops.operator import Operator
from tensorlang.ops.registry import operators
from tensorlang.runtime.llvm import compile_for
from tensorlang.targets import Target
from tensorlang.tuner.ragged import ragged
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
PROVIDED |= {"tensorlang_barrier"}
FLOATS = ("bf16", "f16")
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


def workloads(op: Operator, dtype: str) -> Iterator[Workload]:
    """The usual shapes in one element type, and odd ones."""
    if not op.dtypes or dtype in op.dtypes:
        workload = op.workload(dtypes=dtype)
        yield from (workload, *list(ragged(workload))[:1])


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


def compiles(op: Operator, workload: Workload, cpu: str) -> None:
    """Whether an operator that takes these types is made of instructions alone."""
    there = target(cpu)
    try:
        scheduled = default(op, workload, there, {})[0].function
    except TensorlangError:  # not of these types
        return
    text = render(lower(scheduled, there), there)
    code = compile_for(text, PROCESSORS[cpu][0], cpu)
    assert undefined(code) <= PROVIDED, (cpu, str(workload))


@pytest.mark.parametrize("cpu", PROCESSORS)
def test_a_part_of_the_operators(cpu: str) -> None:
    first = list(PROCESSORS).index(cpu)
    for number, op in enumerate(LIBRARY[first :: len(PROCESSORS)]):
        for workload in list(workloads(op, FLOATS[number % 2]))[:1]:
            compiles(op, workload, cpu)


@pytest.mark.every_processor
@pytest.mark.parametrize("cpu", PROCESSORS)
@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.id)
def test_every_operator(op: Operator, cpu: str) -> None:
    for dtype in (*FLOATS, "f32", "f64", "i8", "i64", "u32", "bool"):
        for workload in list(workloads(op, dtype))[: 2 if dtype in FLOATS else 1]:
            compiles(op, workload, cpu)


def test_helpers_are_seen() -> None:
    text = "define half @f(half %x) {\n  %y = fadd half %x, %x\n  ret half %y\n}"
    assert "__extendhfsf2" in undefined(compile_for(text, X86, "nehalem"))
