"""Products of bf16 and f16 compile to tensor cores, their sums in registers."""

import re

import pytest

from tensorlang import targets
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.runtime import build

DENSE = find("nn.dense")
EPILOGUE = {"activation": "gelu", "dropout": True, "key": "threefry2x32"}


def kernel(dtype="bf16", arch="sm_80", shapes=((4096, 1024), (1024, 1024)), **given):
    dtypes = tuple("u32" if shape == (2,) else dtype for shape in shapes)
    workload = DENSE.workload(*shapes, dtypes=dtypes, **given)
    return DENSE.build(workload, f"cuda:{arch}")


OLDER = [arch for arch in targets.ARCHITECTURES if arch != "sm_90a"]


@pytest.mark.parametrize(
    ("arch", "dtype"), [("sm_80", "f16"), *((a, "bf16") for a in OLDER)]
)
def test_products_use_tensor_cores_and_asynchronous_copies(arch, dtype):
    made = kernel(dtype, arch)
    sass = made.asm
    assert re.search(
        r"\bHMMA\.16816\.F32" + (r"\.BF16" if dtype == "bf16" else ""), sass
    )
    assert "LDGSTS.E.BYPASS.128" in sass
    assert re.search(r"\bLDSM\.16\.M88\.4", sass)
    assert len(re.findall(r"STG\.E\.128", sass)) >= 15  # of 16: eight results at once
    assert made.resources["launches"] == 1
    assert made.resources["spill_bytes"] == made.resources["stack_bytes"] == 0
    assert made.resources["registers"] <= 255


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_warpgroups_multiply_what_bulk_copies_bring(kind):
    shapes = (4096, 4096), (4096, 4096)
    target, workload = targets.get("cuda:sm_90a"), DENSE.workload(*shapes, dtypes=kind)
    made = build(default(DENSE, workload, target, {"few_rows": 0})[0], target)
    assert made.resources["launches"] == 1
    assert kernel(kind, "sm_90a", shapes).resources["launches"] == 2  # few rows
    assert made.resources["spill_bytes"] == made.resources["stack_bytes"] == 0
    copies = re.findall(r"\bUTMALDG\.2D", made.asm)
    kinds = re.escape("F32.BF16" if kind == "bf16" else "F32")
    products = re.findall(rf"\bHGMMA\.64x256x16\.{kinds}", made.asm)
    assert len(copies) == 2  # of each step, in a loop that is not unrolled
    assert len(products) % 4 == 0  # of each step of 64
    assert len(re.findall(r"\bELECT\b", made.asm)) == 2  # to copy, and to store
    assert len(re.findall(r"\bUSETMAXREG", made.asm)) == 2
    assert len(re.findall(r"\bUTMASTG\.2D", made.asm)) == 4  # of 64 columns each
    assert not re.search(r"\bSTG\b", made.asm)
    assert "HMMA" not in made.asm


@pytest.mark.parametrize("arch", targets.ARCHITECTURES)
def test_tiles_of_128_by_256(arch):
    workload = DENSE.workload((4096, 4096), (4096, 4096), dtypes="bf16")
    target = targets.get(f"cuda:{arch}")
    pinned = {"block_columns": 256, "warp_columns": 4}
    if "wgmma" in target.features:
        pinned["instruction"] = "mma"
    made = build(default(DENSE, workload, target, pinned)[0], target)
    assert "__launch_bounds__(256)" in made.source
    assert made.resources["spill_bytes"] == made.resources["stack_bytes"] == 0
    assert len(re.findall(r"\bHMMA\.16816", made.asm)) == 64
    assert len(re.findall(r"LDSM", made.asm)) == 16


@pytest.mark.parametrize("arch", targets.ARCHITECTURES)
def test_an_epilogue_works_on_the_fragments(arch):
    plain = kernel(arch=arch)
    shapes = (4096, 1024), (1024, 1024), (1024,), (2,)
    fused = kernel(arch=arch, shapes=shapes, **EPILOGUE)
    assert fused.resources["launches"] == 1 + (arch == "sm_90a")  # of few rows
    assert fused.resources["shared_bytes"] <= plain.resources["shared_bytes"]
    assert fused.resources["spill_bytes"] == fused.resources["stack_bytes"] == 0
    assert ("HGMMA" if arch == "sm_90a" else "HMMA") in fused.asm


def test_a_weight_that_lies_the_other_way_is_turned_by_ldmatrix():
    made = kernel(layout="io", shapes=((4096, 1024), (1024, 512)))
    assert re.search(r"\bLDSM\.16\.MT88\.4", made.asm)
    assert re.search(r"\bLDSM\.16\.M88\.4", made.asm)
    assert made.resources["spill_bytes"] == 0


def test_f32_stays_f32():
    assert "HMMA" not in kernel("f32").asm


def test_f32_goes_as_tf32_where_a_tolerance_allows_it():
    exact = kernel("f32", tolerance=2.0**-12)
    assert "HMMA" not in exact.asm
    rounded = kernel("f32", tolerance=2.0**-10)
    assert "HMMA.1688.F32.TF32" in rounded.asm
    assert rounded.resources["spill_bytes"] == rounded.resources["stack_bytes"] == 0


@pytest.mark.parametrize("name", ["nn.conv2d", "nn.conv2d_grad", "math.matmul"])
def test_convolutions_and_batches_do_too(name):
    op = find(name)
    workload = op.workload(*op.default.shapes, dtypes="bf16")
    made = op.build(workload, "cuda:sm_90a")
    one = "HMMA.16816" if name.startswith("nn.conv2d") else r"HGMMA.64x\d+x16"
    assert re.search(rf"\b{one}\.F32\.BF16", made.asm)
    assert made.resources["spill_bytes"] == made.resources["stack_bytes"] == 0


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_of_several_unknown_sizes_are_not_of_warpgroups(causal):
    op = find("nn.attention")
    shapes = (2, 4, 128, 72), (2, 2, 128, 72), (2, 2, 128, 72)  # no whole products
    workload = op.workload(*shapes, dtypes="bf16", causal=causal)
    made = op.build(workload, "cuda:sm_90a")  # ptxas finds registers
    assert "HGMMA" not in made.asm
    assert made.resources["spill_bytes"] == 0


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize(("size", "rows"), [(64, 32), (128, 16)])
def test_attention_keeps_scores_in_registers(target, size, rows):
    op = find("nn.attention")
    workload = op.workload(*((2, 4, 128, size),) * 3, dtypes="bf16", causal=True)
    made = op.build(workload, target)
    assert made.resources["spill_bytes"] == 0
    assert made.resources["launches"] == 1
    # for 64 keys, two products of so many rows of a warp, each of 16 x 8 x 16
    products = 2 * rows * 64 * size // (16 * 8 * 16)
    assert made.asm.count("HMMA.16816.F32.BF16") == products
    # queries, keys and values, four 8 x 8 matrices each
    loads = (rows * size + 2 * 64 * size) // (4 * 8 * 8)
    assert len(re.findall(r"LDSM\.16\.MT?88\.4", made.asm)) == loads
    # no more than one exponential a score, and one a row and lane
    assert made.asm.count("MUFU.EX2") == rows * (64 + 4) // 32


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize(("size", "columns"), [(64, 64), (128, 32)])
def test_gradients_of_attention_keep_scores_in_registers(target, size, columns):
    op = find("nn.attention_grad")
    workload = op.workload(*((2, 4, 128, size),) * 4, dtypes="bf16", causal=True)
    made = op.build(workload, target)
    assert made.resources["spill_bytes"] == 0
    assert made.resources["launches"] == 3
    # of 16 rows of a warp and so many columns, three products for queries, four for
    # keys; of those that find the maxima, two of more rows and 64 columns
    forward = 2 * (32 if size == 64 else 16) * 64
    products = (forward + 7 * 16 * columns) * size // (16 * 8 * 16)
    assert made.asm.count("HMMA.16816.F32.BF16") == products
    # no more than one exponential a score, and one a row and lane
    scores = (32 if size == 64 else 16) * (64 + 4) + 2 * 16 * columns
    assert made.asm.count("MUFU.EX2") == scores // 32


def by_groups(name, size, *, causal):
    """A kernel of attention by warpgroups."""
    op, target = find(name), targets.to_compile("cuda:sm_90a")
    shapes = ((2, 4, 256, size),) * (4 if name.endswith("_grad") else 3)
    workload = op.workload(*shapes, dtypes="bf16", causal=causal)
    knobs = {"algorithm": "group_tiles"}
    return build(default(op, workload, target, knobs)[0], target)


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize(("causal", "columns"), [(False, 128), (True, 64)])
def test_attention_by_warpgroups(size, causal, columns):
    made = by_groups("nn.attention", size, causal=causal)
    assert made.resources["spill_bytes"] == 0
    assert not re.search(r"\bHMMA|LDSM|LDGSTS", made.asm)
    # both products of a step; the first one and the last one are by themselves
    assert made.asm.count("HGMMA") == 2 * (size + columns) // 16
    # the second one goes on during the rest
    assert len(re.findall(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x1", made.asm)) == 1
    # a maximum is one instruction an element, of two steps
    assert made.asm.count("FMNMX") < 2 * columns // 2 + 32


@pytest.mark.parametrize("size", [64, 128])
def test_gradients_of_attention_by_warpgroups(size):
    made = by_groups("nn.attention_grad", size, causal=True)
    assert made.resources["spill_bytes"] == 0
    assert made.resources["launches"] == 3
    assert not re.search(r"\bHMMA|LDSM", made.asm)


@pytest.mark.parametrize(
    ("name", "target", "size", "mask"),
    [
        ("nn.attention", "cuda:sm_100", 64, "f32"),
        ("nn.attention", "cuda:sm_80", 64, "bool"),
        ("nn.attention_grad", "cuda:sm_90a", 64, "bool"),
        ("nn.attention_grad", "cuda:sm_90a", 128, "bool"),
    ],
)
def test_masks_of_attention_spill_no_registers(name, target, size, mask):
    op, given = find(name), 4 if name.endswith("_grad") else 3
    shapes = *((2, 4, 128, size),) * given, (2, 4, 128, 128)
    workload = op.workload(*shapes, dtypes=("bf16",) * given + (mask,))
    assert op.build(workload, target).resources["spill_bytes"] == 0
