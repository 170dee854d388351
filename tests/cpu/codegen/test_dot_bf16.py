"""The bf16 dot product instruction: the bits that its meaning gives."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir import run
from tensorlang.runtime import build
from tensorlang.scheduling.tensor_intrinsics import tensor_intrinsic

NATIVE = "avx512_bf16"


@pytest.mark.parametrize("native", [True, False])
def test_the_instruction_and_its_two_steps_agree_with_the_meaning(native: bool) -> None:
    host = targets.host()
    if native and NATIVE not in host.features:
        pytest.skip(f"the processor lacks {NATIVE}")
    features = tuple(name for name in host.features if native or name != NATIVE)
    step = tensor_intrinsic("dpbf16_16xf32").implementation
    kernel = build(step, dataclasses.replace(host, features=features), store=False)
    assert ("llvm.x86.avx512bf16.dpbf16ps.512" in kernel.source) == native
    generator = np.random.default_rng(0)
    for _ in range(50):
        a = generator.standard_normal(2).astype(ml_dtypes.bfloat16)
        b = generator.standard_normal((2, 16)).astype(ml_dtypes.bfloat16)
        expected = generator.standard_normal(16, np.float32)
        got = expected.copy()
        run(step, expected, a, b)
        kernel.launch(got, a, b)
        assert (got.view(np.uint32) == expected.view(np.uint32)).all()
