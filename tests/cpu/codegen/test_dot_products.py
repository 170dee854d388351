"""Dot product instructions: the bits that their meaning gives."""

from __future__ import annotations

import dataclasses
import re

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.codegen.llvm.render import render
from tensorlang.codegen.lower import lower
from tensorlang.errors import CodegenError
from tensorlang.instructions import DOT_PRODUCTS, DotProduct
from tensorlang.ir import Buffer, run
from tensorlang.runtime import build
from tensorlang.runtime.cpu import llvm
from tensorlang.scheduling.intrinsics.dots import LAYOUTS, dot_name, layouts
from tensorlang.scheduling.intrinsics.tensor import tensor_intrinsic

NATIVE = "avx512_bf16"


def drawn(generator: np.random.Generator, buffer: Buffer) -> np.ndarray:
    """Small whole numbers, which floats add up exactly, or bytes of any value."""
    shape = tuple(int(extent.value) for extent in buffer.shape)
    limit = 100 if buffer.dtype.is_float else 1 << 31
    return generator.integers(-limit, limit, shape).astype(buffer.dtype.numpy)


STEP = tensor_intrinsic("dpbf16ps_bf16_columns").implementation


@pytest.mark.parametrize("by_meaning", [False, True])
def test_the_instruction_agrees_with_its_meaning(*, by_meaning: bool) -> None:
    """Subnormal numbers are 0 to it, before and after each step."""
    host = targets.host()
    if NATIVE not in host.features and not by_meaning:
        pytest.skip(f"the processor lacks {NATIVE}")
    kernel = build(STEP, host, store=False, by_meaning=by_meaning)
    has_it = "llvm.x86.avx512bf16.dpbf16ps.512" in kernel.source
    assert has_it != by_meaning
    generator = np.random.default_rng(0)
    for power in [0] * 50 + [*range(-140, -110)] * 20:
        scale = 2.0 ** (power / 2)
        a = (generator.standard_normal(2) * scale).astype(ml_dtypes.bfloat16)
        b = (generator.standard_normal((2, 16)) * scale).astype(ml_dtypes.bfloat16)
        expected = generator.standard_normal(16).astype(np.float32)
        expected *= np.float32(2.0**power)
        got = expected.copy()
        run(STEP, expected, a, b)
        kernel.launch(got, a, b)
        assert (got.view(np.uint32) == expected.view(np.uint32)).all()


@pytest.mark.parametrize(
    ("start", "product", "result"),
    [
        (2.0**-126, 2.0**-150, 0.0),  # below the normal numbers, of their digits
        (2.0**-126, 2.0**-151, 2.0**-126),  # a tie
        (1e-39, 0.0, 0.0),
    ],
)
def test_what_counts_as_subnormal(start: float, product: float, result: float) -> None:
    y = np.full(16, start, np.float32)
    a = np.array([-product * 2.0**75, 0.0]).astype(ml_dtypes.bfloat16)
    b = np.full((2, 16), 2.0**-75).astype(ml_dtypes.bfloat16)
    got = y.copy()
    run(STEP, y, a, b)
    assert (y == np.float32(result)).all()
    build(STEP, store=False, by_meaning=True).launch(got, a, b)
    np.testing.assert_array_equal(got.view(np.uint32), y.view(np.uint32))


# a processor with each instruction, and what its assembler calls it
PROCESSORS = {
    "dpbf16ps": ("x86_64-unknown-linux-gnu", "sapphirerapids", "vdpbf16ps"),
    "dpbusd": ("x86_64-unknown-linux-gnu", "sapphirerapids", "vpdpbusd"),
    "dpbusd_256": ("x86_64-unknown-linux-gnu", "alderlake", "vpdpbusd"),
    "dpbssd_256": ("x86_64-unknown-linux-gnu", "sierraforest", "vpdpbssd"),
    "dpbuud_256": ("x86_64-unknown-linux-gnu", "sierraforest", "vpdpbuud"),
    "usdot": ("aarch64-unknown-linux-gnu", "neoverse-v1", "usdot"),
    "sdot": ("aarch64-unknown-linux-gnu", "neoverse-n1", "sdot"),
    "udot": ("aarch64-unknown-linux-gnu", "neoverse-n1", "udot"),
}


@pytest.mark.parametrize("row", DOT_PRODUCTS.values(), ids=lambda row: row.name)
def test_processors_elsewhere_have_the_instruction(row: DotProduct) -> None:
    """A step is loads, one dot product and a store."""
    triple, cpu, mnemonic = PROCESSORS[row.name]
    for first in (row.a, row.b):
        step = tensor_intrinsic(dot_name(row, first, "along")).implementation
        target = targets.Target(cpu=cpu, features=row.features)
        text = render(lower(step, target), target)
        listed = llvm.compile_for(text, triple, cpu, listed=True).decode()
        body = listed[listed.index(f"{step.name}.stage0:") :].partition(".Lfunc_end")[0]
        used = re.findall(r"^\t(?:\{vex\}\t)?([\w.]+)", body, re.MULTILINE)
        assert used.count(mnemonic) == 1, body
        assert len(used) < 10, body


def test_processors_without_it_are_told() -> None:
    host = dataclasses.replace(targets.host(), features=("sse2",))
    with pytest.raises(CodegenError, match="processors with avx512_bf16"):
        build(STEP, host, store=False)


@pytest.mark.parametrize("by_meaning", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("row", DOT_PRODUCTS.values(), ids=lambda row: row.name)
def test_every_instruction_and_layout_here(
    row: DotProduct, layout: str, *, by_meaning: bool
) -> None:
    host, generator = targets.host(), np.random.default_rng(0)
    if not row.fits(host.features) and not by_meaning:
        pytest.skip(f"the processor lacks {' and '.join(row.features)}")
    for first in (row.a, row.b):
        if layout not in layouts(row, first):
            continue
        step = tensor_intrinsic(dot_name(row, first, layout)).implementation
        kernel = build(step, host, store=False, by_meaning=by_meaning)
        for _ in range(30):
            arrays = [drawn(generator, buffer) for buffer in step.buffers]
            expected = [array.copy() for array in arrays]
            run(step, *expected)
            kernel(*arrays)
            np.testing.assert_array_equal(arrays[0], expected[0])
