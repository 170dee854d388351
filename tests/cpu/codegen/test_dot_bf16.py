"""The bf16 dot product instruction: the bits that its meaning gives."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import CodegenError
from tensorlang.ir import run
from tensorlang.runtime import build
from tensorlang.scheduling.tensor_intrinsics import tensor_intrinsic

NATIVE = "avx512_bf16"


STEP = tensor_intrinsic("dpbf16_16xf32").implementation


def test_the_instruction_agrees_with_its_meaning() -> None:
    """Subnormal numbers are 0 to it, before and after each step."""
    host = targets.host()
    if NATIVE not in host.features:
        pytest.skip(f"the processor lacks {NATIVE}")
    kernel = build(STEP, host, store=False)
    assert "llvm.x86.avx512bf16.dpbf16ps.512" in kernel.source
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
    run(STEP, y, a, b)
    assert (y == np.float32(result)).all()


def test_processors_without_it_are_told() -> None:
    host = dataclasses.replace(targets.host(), features=("sse2",))
    with pytest.raises(CodegenError, match="processors with avx512_bf16"):
        build(STEP, host, store=False)
