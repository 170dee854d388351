"""Kernels of every family compile for three architectures, and keep their registers."""

import re
import subprocess
import sys

import pytest

from tensorlang import build, targets
from tensorlang.errors import CodegenError, TargetError
from tensorlang.ops import find
from tensorlang.runtime.cuda import toolchain

FAMILIES = [
    "math.argmax",
    "math.cumsum",
    "math.power",
    "math.sort",
    "nn.avg_pool2d_grad",
    "nn.batch_norm_train",
    "nn.conv2d",
    "nn.cross_entropy",
    "nn.dense",
    "nn.dropout",
    "nn.embedding_grad",
    "nn.gelu",
    "nn.layer_norm",
    "nn.softmax",
    "nn.transpose",
    "optim.adam",
    "random.bits",
    "random.categorical",
    "random.normal",
    "random.permutation",
]


@pytest.mark.parametrize("arch", targets.ARCHITECTURES)
@pytest.mark.parametrize("name", FAMILIES)
def test_no_spills(name, arch):
    op = find(name)
    kernel = op.build(op.default, f"cuda:{arch}")
    assert kernel.artifact.object_code[:4] == b"\x7fELF"
    assert 0 < kernel.resources["registers"] <= 255
    assert kernel.resources["spill_bytes"] == 0


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("name", ["nn.gelu", "math.divide", "nn.softmax", "math.sum"])
def test_other_floats(name, dtype):
    op = find(name)
    workload = op.workload(*op.default.shapes, dtypes=dtype)
    assert op.build(workload, "cuda:sm_80").resources["spill_bytes"] == 0


def test_strict_floats_and_wide_accesses():
    gelu = find("nn.gelu")
    kernel = gelu.build(gelu.default, "cuda:sm_90a")
    assert "ld.global.nc.v4.f32" in kernel.ptx
    assert ".target sm_90a" in kernel.ptx
    assert "LDG.E.128" in kernel.asm
    assert "STG.E.128" in kernel.asm
    scale = find("math.multiply_grad")
    assert "fma" not in scale.build(scale.default, "cuda:sm_80").ptx


def test_a_hash_rotates_in_one_instruction():
    bits = find("random.bits")
    sass = bits.build(bits.default, "cuda:sm_90a").asm
    assert re.search(r"\bSHF\.L\.W\.U32", sass)


def test_the_compilers_need_nothing_else_loaded():
    program = (
        "from tensorlang.ops import find; op = find('nn.gelu'); "
        "print(op.build(op.default, 'cuda:sm_80').ptx)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ".target sm_80" in said.stdout, said.stderr


def test_what_is_told_without_a_gpu():
    gelu = find("nn.gelu")
    kernel = gelu.build(gelu.default, "cuda:sm_80")
    with pytest.raises(TargetError, match="without a GPU"):
        kernel.launch(1, 2)
    with pytest.raises(TargetError, match=r"'cuda' is not present.*cuda:sm_90a"):
        build(gelu.function(gelu.default), "cuda")
    with pytest.raises(CodegenError, match="NVRTC rejects"):
        toolchain.ptx_of("nonsense", "sm_80")
    with pytest.raises(CodegenError, match="ptxas rejects"):
        toolchain.cubin_of("nonsense", "sm_80")
