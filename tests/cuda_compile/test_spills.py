"""What spills so that several blocks fit on a processor is compiled for fewer."""

from tensorlang.codegen.c_family.render import render
from tensorlang.codegen.simt.lower import lower
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.runtime.cuda import toolchain
from tensorlang.targets import get

GPU = get("cuda:sm_90a")


def test_bounds_that_spill_are_lowered():
    op = find("math.matmul")
    function = default(op, op.default, GPU, {"rows": 8, "warps": 4})[0].function
    source = render(lower(function, GPU), GPU)
    bounds = "__launch_bounds__(256)"
    assert bounds in source
    tight = source.replace(bounds, "__launch_bounds__(256, 4)")
    ptx = toolchain.ptx_of(tight, GPU.arch)
    assert ".minnctapersm 4" in ptx
    assert toolchain.cubin_of(ptx, GPU.arch)[1]["spill_bytes"] > 0
    assert toolchain.whole_cubin_of(ptx, GPU.arch)[1]["spill_bytes"] == 0
