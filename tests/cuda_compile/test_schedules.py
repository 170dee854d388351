"""What the default schedules become: wide accesses, shuffles, tiles, no spills."""

import re

import pytest

from tensorlang import targets
from tensorlang.ops import find

ARCH = "cuda:sm_90a"
OTHERS = ["math.argmax", "nn.layer_norm_grad", "random.permutation"]
REGISTERS = 1 << 16  # of a processor


def built(name, *shapes, arch=ARCH, **attributes):
    op = find(name)
    workload = op.workload(*shapes, **attributes) if shapes else op.default
    return op.build(workload, arch)


def count(pattern, kernel):
    return len(re.findall(pattern, kernel.asm))


def launches(kernel):
    """The machine code of each launch."""
    parts = re.split(r"\.section\s+\.text\.", kernel.asm)[1:]
    return {
        part.partition(",")[0]: part.partition("\n$__internal")[0] for part in parts
    }


def instructions(asm):
    return len(re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?!NOP)", asm))


@pytest.mark.parametrize("arch", targets.ARCHITECTURES)
@pytest.mark.parametrize("name", ["nn.dense", "math.matmul"])
def test_products_have_16_by_8_sums_and_copy_16_bytes_while_they_compute(name, arch):
    kernel = built(name, arch=f"cuda:{arch}")
    assert kernel.resources["spill_bytes"] == kernel.resources["stack_bytes"] == 0
    assert two_blocks_fit(kernel)
    assert count(r"LDGSTS\.E\.BYPASS\.128", kernel) == 3 * 8
    assert count(r"\bLDG\.", kernel) == count(r"LDGSTS\.E (?!BYPASS)", kernel) == 0
    assert count(r"LDS\.128", kernel) == 24  # sixteen rows and eight columns, by fours
    assert count(r"\bFFMA", kernel) == 4 * 128
    assert count(r"STG\.E\.128", kernel) >= 31


@pytest.mark.parametrize("arch", targets.ARCHITECTURES)
@pytest.mark.parametrize("name", ["nn.dense", "math.matmul"])
def test_products_of_doubles_spill_nothing(name, arch):
    shapes = [(1000, 1000), (1000, 1000)]
    kernel = built(name, *shapes, arch=f"cuda:{arch}", dtypes="f64")
    assert kernel.resources["spill_bytes"] == kernel.resources["stack_bytes"] == 0
    assert kernel.resources["registers"] <= 200
    assert "__shared__" in kernel.source


@pytest.mark.parametrize(("dtype", "loads"), [("f32", 8), ("bf16", 4)])
def test_a_batch_of_one_is_a_launch_that_reads_16_bytes_at_once(dtype, loads):
    kernel = built("nn.dense", (1, 4096), (4096, 4096), (4096,), dtypes=dtype)
    assert kernel.resources["launches"] == 1
    assert kernel.resources["registers"] <= 64
    assert count(r"LDG\.E\.128", kernel) == loads


def two_blocks_fit(kernel):
    """Whether a processor has registers for two blocks of each launch that tiles."""
    bounds = re.findall(r"__launch_bounds__\((\d+), (\d+)\)", kernel.source)
    registers = kernel.resources["registers"]
    return bool(bounds) and all(
        int(least) >= 2 and 2 * int(threads) * registers <= REGISTERS
        for threads, least in bounds
    )


@pytest.mark.parametrize("name", ["math.matmul_grad", "nn.conv2d_grad"])
def test_gradients_of_products_are_tiles_of_which_two_fit(name):
    kernel = built(name)
    assert kernel.resources["spill_bytes"] == kernel.resources["stack_bytes"] == 0
    assert two_blocks_fit(kernel)


def test_convolutions_are_tiles():
    kernel = built("nn.conv2d")
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["launches"] == 1
    assert count(r"LDS\.128", kernel) >= 3 * 4
    assert count(r"\bFFMA", kernel) >= 4 * 32


@pytest.mark.parametrize(
    ("name", "loads", "stores"),
    [
        ("math.add", 4, 2),
        ("math.exp", 2, 2),
        ("optim.adam", 4, 3),
        ("nn.dropout", 1, 1),
    ],
)
def test_elements_are_loaded_together_before_the_first_is_used(name, loads, stores):
    kernel = built(name)
    assert kernel.resources["registers"] <= 42  # 1536 threads on a processor
    asm = kernel.asm.rpartition(".section")[2]  # of the kernel for one set of arrays
    assert len(re.findall(r"STG\.E\.128", asm)) == stores
    whole = [m.start() for m in re.finditer(r"LDG\.E\.128", asm)]
    assert len(whole) == loads
    between = asm[whole[0] : whole[-1]]
    assert not re.search(r"\b(FADD|FMUL|FFMA|STG|BRA)\b", between)


@pytest.mark.parametrize("name", ["math.sum_grad", "math.mean_grad", "nn.transpose"])
def test_blocks_of_rows_of_any_length_are_found_by_plain_division(name):
    kernel = built(name)
    assert "floordiv_" not in kernel.source
    assert count(r"STG\.E\.128", kernel) == (4 if name == "nn.transpose" else 1)


@pytest.mark.parametrize("name", ["random.bits", "nn.dropout"])
def test_a_ragged_end_has_no_hashes_of_its_own(name):
    kernel = built(name)
    shifts, products = r"\bSHF\.L\.W", r"\bIMAD\.WIDE\.U32"
    assert count(shifts, kernel) == 4 * 11  # of four words, 20 rounds each
    assert count(products, kernel) == 4 * 9  # on the unit that adds
    assert count(r"\bLOP3", kernel) <= 4 * 27
    assert kernel.source.count("__funnelshift_l") == 1
    assert kernel.source.count("rotl_u32(") - 1 == 11


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_dropout_divides_once_per_thread(dtype):
    kernel = built("nn.dropout", (1 << 24,), dtypes=dtype)
    asm = launches(kernel)["nn_dropout"]
    each = 128 // (32 if dtype == "f32" else 16)
    assert len(re.findall(r"\bF2F\.F32\.F64", asm)) == each
    assert len(re.findall(r"\bMUFU\.RCP", asm)) == 1
    assert not re.search(r"\bFCHK", asm)


@pytest.mark.parametrize("name", ["nn.softmax", "nn.layer_norm"])
def test_rows_are_read_once_in_wide_loads_and_folded_by_shuffles(name):
    kernel = built(name)
    assert kernel.resources["launches"] == 1
    assert kernel.resources["registers"] <= 64
    assert kernel.resources["spill_bytes"] == 0
    assert count(r"STG\.E\.128", kernel) == 4
    assert count(r"\bSHFL\.BFLY", kernel) == 10
    assert count(r"BAR\.SYNC", kernel) == 2
    own = 4 if name == "nn.softmax" else 12  # and its weight and bias
    assert count(r"LDG\.E\.128", kernel) == own


def test_sums_of_all_are_two_launches_of_wide_loads():
    kernel = built("optim.sum_of_squares")
    assert kernel.resources["launches"] == 2
    assert count(r"LDG\.E\.128", kernel) == 8


@pytest.mark.parametrize(("dtype", "each"), [("f32", 4), ("bf16", 8), ("f64", 2)])
def test_transposes_of_whole_squares_access_16_bytes(dtype, each):
    kernel = built("nn.transpose", (16384, 4096), dtypes=dtype)
    assert kernel.resources["launches"] == 2
    asm = launches(kernel)["nn_transpose_1"]
    elements = 64 * 64 // 256
    for wide in (r"LDG\.E\.128", r"STS\.128", r"STG\.E\.128"):
        assert len(re.findall(wide, asm)) == elements // each
    for other in (r"\bLDG", r"\bSTG"):
        assert len(re.findall(other, asm)) == elements // each
    assert len(re.findall(r"BAR\.SYNC", asm)) == 1
    assert instructions(asm) <= 12 * elements


def test_sums_of_columns_are_one_launch_of_wide_loads_without_conditions():
    kernel = built("math.sum", (16384, 4096), axis=0)
    asm = launches(kernel)["math_sum_1"]
    loads = re.findall(r"(@!?P\d)?\s+(LDG\S*)", asm)
    assert len(loads) >= 4
    assert all(name.startswith("LDG.E.128") and not guard for guard, name in loads)
    assert kernel.resources["registers"] <= 64  # of 1024 threads


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_is_spilled(name):
    resources = built(name).resources
    assert resources["spill_bytes"] == resources["stack_bytes"] == 0
    assert resources["registers"] <= 128


def test_convolutions_of_bf16_copy_16_bytes_beside_tensor_cores():
    kernel = built("nn.conv2d", (64, 64, 58, 58), (64, 64, 3, 3), dtypes="bf16")
    assert kernel.resources["spill_bytes"] == 0
    assert count(r"\bHMMA", kernel) >= 32
    assert count(r"LDGSTS\.E\.BYPASS\.\S*128", kernel) >= 12
    assert not re.search(r"LDGSTS\.E (?!BYPASS)", kernel.asm)


def test_convolutions_with_channels_last_are_products_of_warpgroups():
    shapes = (64, 56, 56, 64), (64, 64, 3, 3)
    given = {"dtypes": "bf16", "layout": "NHWC", "padding": (1, 1, 1, 1)}
    kernel = built("nn.conv2d", *shapes, **given)
    assert kernel.resources["launches"] == 2  # one copies the weights
    assert kernel.resources["spill_bytes"] == kernel.resources["stack_bytes"] == 0
    assert count(r"\bHGMMA\.64x64x16", kernel) >= 4
    assert count(r"UTMALDG\.4D", kernel) == 2  # a box of pixels, and weights
    assert count(r"UTMASTG\.4D", kernel) == 1
    assert count(r"LDG\.E\.128", kernel) == count(r"STG\.E\.128", kernel) == 9
    assert count(r"\bSTG", kernel) == 9
    assert "HMMA" not in kernel.asm


def test_large_windows_are_read_line_by_line():
    shape = (64, 64, 112, 112)
    kernel = built("nn.adaptive_avg_pool2d", shape, results=(7, 7))
    assert kernel.resources["launches"] == 1
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["registers"] <= 64
    assert count(r"LDG\.E\.128", kernel) == count(r"LDG", kernel) > 0


def test_numbers_of_elements_are_divided_in_32_bits():
    kernel = built("nn.pad")  # of any number of images
    assert "i64 at" not in kernel.source.replace("(i64)at", "")
    assert len(re.findall(r"^\s+/\*[0-9a-f]+\*/", kernel.asm, re.MULTILINE)) <= 64


def test_gradients_of_poolings_keep_windows_in_registers():
    way = {"kernel": 3, "stride": 2, "padding": 1}
    shapes = (64, 64, 56, 56), (64, 64, 112, 112)
    kernel = built("nn.max_pool2d_grad", *shapes, **way)
    assert kernel.resources["launches"] == 1
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["stack_bytes"] == 0
    assert kernel.resources["registers"] <= 128
    assert count(r"STG\.E\.128", kernel) == count(r"STG", kernel) == 4
    assert count(r"LDG", kernel) <= 7 * 4 + 3 * 2  # lines of pixels, and of dy
    assert not count(r"ATOM|RED\.", kernel)


def test_gradients_of_depthwise_weights_are_parts_of_threads_and_then_of_blocks():
    shape = (64, 32, 112, 112)
    given = {"padding": 1, "groups": 32, "window": (3, 3)}
    kernel = built("nn.conv2d_grad_weight", shape, shape, **given)
    assert kernel.resources["launches"] == 2
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["registers"] <= 64
    assert (
        count(r"LDG\.E\.128", kernel) == 6 + 4 + 2
    )  # lines of pixels, of dy, and parts
    assert count(r"\bFFMA", kernel) == 16 * 9
    assert count(r"\bSHFL\.BFLY", kernel) == 5


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "loads", "registers"),
    [
        (
            "nn.conv2d",
            ((64, 32, 112, 112), (32, 1, 3, 3)),
            {"padding": 1, "groups": 32},
            (6, 12 + 9),  # of each line a whole access and its ends; and the weights
            64,
        ),
        (
            "nn.max_pool2d",
            ((64, 64, 112, 112),),
            {"kernel": 3, "stride": 2, "padding": 1},
            (5 * 2, 5),
            48,
        ),
    ],
)
def test_windows_load_each_pixel_once(name, shapes, attributes, loads, registers):
    kernel = built(name, *shapes, **attributes)
    assert kernel.resources["launches"] == 1
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["registers"] <= registers
    wide = count(r"LDG\.E\.128", kernel)
    assert (wide, count(r"LDG\.E", kernel) - wide) == loads
    assert count(r"STG\.E\.128", kernel) == count(r"STG", kernel)
    assert count(r"\bBRA", kernel) <= 1  # none but the one behind the end


@pytest.mark.parametrize("arch", ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_100"])
def test_running_sums_are_scans_of_blocks(arch):
    kernel = built("math.cumsum", arch=arch)
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["registers"] <= 80  # three blocks of 256 on a processor
    assert kernel.resources["launches"] == 4  # of which a call makes one, or three
    assert count(r"LDG\.E\.128", kernel) == 3 * (4 + 4)  # of whole parts, and of ends
    assert count(r"\bSHFL", kernel) > 0


def part_from(begin):
    return {"begin": (None, begin), "end": (None, begin + 1024)}


@pytest.mark.parametrize(("dtype", "begin"), [("f32", 1024), ("bf16", 8), ("i8", 16)])
def test_slices_are_copied_wide_and_go_back_wide(dtype, begin):
    part = part_from(begin)
    taken = find("nn.slice").workload((8192, 3072), dtypes=dtype, **part)
    back = find("nn.slice_grad").workload(
        (8192, 1024), (8192, 3072), dtypes=dtype, **part
    )
    for workload in (taken, back):
        kernel = find(workload.operator).build(workload, "cuda:sm_90a")
        assert "LDG.E.128" in kernel.asm
        assert "STG.E.128" in kernel.asm
        assert kernel.resources["spill_bytes"] == 0


def test_a_slice_that_begins_between_is_not_copied_wide():
    workload = find("nn.slice").workload((8192, 3072), **part_from(1023))
    kernel = find("nn.slice").build(workload, "cuda:sm_90a")
    assert "LDG.E.128" not in kernel.asm
    assert "f32x4" not in kernel.source


def test_winograd_is_transforms_in_registers_and_tiled_products():
    shapes = (32, 64, 56, 56), (64, 64, 3, 3)
    kernel = built("nn.conv2d", *shapes, padding=1, tolerance=1e-2)
    assert kernel.resources["launches"] == 4  # weights, images, products, results
    assert kernel.resources["spill_bytes"] == kernel.resources["stack_bytes"] == 0
    assert kernel.resources["shared_bytes"] > 0
    assert count(r"LDS\.128", kernel) >= 8


@pytest.mark.parametrize("arch", ["cuda:sm_80", "cuda:sm_100"])
def test_tiles_of_pixels_are_registers_everywhere(arch):
    way = {"kernel": 3, "stride": 2, "padding": 1}
    shapes = (64, 64, 56, 56), (64, 64, 112, 112)
    kernel = built("nn.max_pool2d_grad", *shapes, arch=arch, **way)
    assert kernel.resources["spill_bytes"] == kernel.resources["stack_bytes"] == 0
