"""The ring of `examples/hopper_ring.py`: its text, its run, its instructions."""

import importlib.util
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.codegen.lower import lower as lower_for_cpu
from tensorlang.codegen.simt.host import host_program, launches
from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import CodegenError, InterpreterError
from tensorlang.ir.gpu_effects import GPU_EFFECTS
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Call
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.ir.visit import walk
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default

EXAMPLE = Path(__file__).parents[3] / "examples" / "hopper_ring.py"
HOPPER = targets.to_compile("cuda:sm_90a")


@pytest.fixture(scope="module")
def ring():
    """`ring(m, n, k, width=, stages=)` is the function, with a part of it changed."""
    spec = importlib.util.spec_from_file_location("hopper_ring", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def make(m=128, n=64, k=128, *, old="", new="", width=64, stages=2):
        func = module.hopper_ring(m, n, k, width=width, stages=stages)
        text = show(func)
        assert old in text
        return parse(text.replace(old, new))

    return make


def operands(m, n, k):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, (rows, k)) for rows in (m, n))
    a, b = (x.astype(ml_dtypes.bfloat16) for x in (a, b))
    return a, b, np.zeros((m, n), "f4")


@pytest.mark.parametrize(
    ("shape", "stages"), [((128, 64, 128), 2), ((128, 64, 256), 3), ((256, 64, 64), 1)]
)
def test_the_ring_multiplies_with_every_check(ring, shape, stages):
    func = ring(*shape, stages=stages)
    verify(func)
    assert parse(show(func)) == func
    a, b, c = operands(*shape)
    run(func, a, b, c)
    assert (c == a.astype("f4") @ b.astype("f4").T).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "wait(full[kc % 2], kc // 2)",
            "pass",
            r"race: [ab]_s\[0, 0, 0\]: a warp reads",
        ),
        (
            "if t % 32 == 0",
            "if t % 64 == 0",
            r"deadlock: .* phase 0 of empty\[0\] \(4 of",
        ),
        (
            "wait(empty[k % 2], k // 2 - 1)",
            "wait(empty[k % 2], k // 2 - 2)",
            r"phase -2 of empty\[0\], where phase 0 is open",
        ),
        (
            "with role(t < 256, registers=232)",
            "with role(t < 224, registers=232)",
            "divergent collective: 32 of 128 threads of a warpgroup do not reach block",
        ),
        ("vw=spatial(2, t // 128)", "vw=spatial(2, 1 - t // 128)", "sums.* of thread"),
    ],
)
def test_faults_of_the_ring_are_found(ring, old, new, message):
    with pytest.raises(InterpreterError, match=message):
        run(ring(k=256, old=old, new=new), *operands(128, 64, 256))


def test_the_ring_is_a_launch_of_instructions(ring):
    lowered = lower(ring(1024, 1024, 1024, stages=4), HOPPER)
    found = {n.name for n in walk(lowered) if isinstance(n, Call)}
    others = {name for name in GPU_EFFECTS if re.match(r"bulk_(store|.*d$)", name)}
    others |= {
        "bulk_commit",
        "bulk_wait",
        "group_barrier",
        "products_wait",
        "proxy_fence",
    }
    assert found == set(GPU_EFFECTS) - others
    (launch,) = launches(lowered)
    assert launch.grid[0].value == 16
    assert [b.name for b in launch.buffers] == ["c"]  # the others have tensor maps


def test_what_the_host_is_told_of_tensor_maps_and_shared_memory(ring):
    told = host_program(lower(ring(256, 192, 320, stages=3), HOPPER))["launches"][0]
    a, b, c = told["args"]
    assert a[:2] == ["tensor_map", 0]
    assert a[2] == {
        "dtype": "bf16",
        "shape": [256, 320],
        "box": [128, 64],
        "swizzle": 128,
    }
    assert b[2]["box"] == [64, 64]
    assert c == ["param", 2]
    assert told["dynamic_shared"] == 3 * (128 + 64) * 128 + 1024 + 3 * 8


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_100"])
def test_other_gpus_refuse_in_a_sentence(ring, target):
    with pytest.raises(
        CodegenError, match=r"'(tma|wgmma)', which cuda:sm_\d+ .* lacks"
    ):
        lower(ring(), targets.to_compile(target))


def test_a_cpu_refuses_in_a_sentence(ring):
    with pytest.raises(CodegenError, match="a CPU has no such index"):
        lower_for_cpu(ring(), targets.host())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(j // 8 ^ i % 8) * 8 + j % 8", "j", "does not have the 128-byte swizzle"),
        (
            "(j // 8 ^ i % 8) * 8 + j % 8",
            "j % 8 * 8 + j // 8",
            "has a layout that it cannot write",
        ),
        ("j % 2)", "(j + 1) % 2)", "does not have the layout of accumulators"),
        (
            "i // 64 * 128 + i",
            "(1 - i // 64) * 128 + i",
            "adds to accumulators of another one",
        ),
        ("vq % 64]) * cast(", "vq % 64]) + cast(", "does not multiply bf16 or"),
        ("registers=40", "registers=56", "request 66560 of 65536 registers and would"),
        (
            "t >= 256, reg",
            "t >= 288, reg",
            "does not consist of whole warpgroups of 128",
        ),
        ("for ai in range(128)", "for ai in range(127)", "does not fill all of its"),
    ],
)
def test_loops_that_are_no_instruction(ring, old, new, message):
    with pytest.raises(CodegenError, match=message):
        lower(ring(old=old, new=new), HOPPER)


def dense(layout="oi", **knobs):
    """The text of a scheduled `dense`."""
    op = find("nn.dense")
    shapes = (128, 256), (128, 256) if layout == "oi" else (256, 128)
    workload = op.workload(*shapes, dtypes="bf16", layout=layout)
    return show(default(op, workload, HOPPER, knobs)[0].function)


def changed(text, old, new):
    """The function of a text with a part of it changed."""
    assert old in text
    return parse(text.replace(old, new))


# what panels are numbered by
@pytest.mark.parametrize("panel", ["c // 64 * 2", "1 - c // 64"])
def test_panels_follow_one_another(panel):
    text = dense("io", bulk_store=False)
    lower(parse(text), HOPPER)
    with pytest.raises(CodegenError, match=r"cannot be a bulk copy|not shared memory"):
        lower(changed(text, "c // 64, r,", f"{panel}, r,"), HOPPER)


def test_products_in_flight_are_in_every_step():
    text = dense(in_flight=1, bulk_store=False)
    start = text.index("with block(", text.index("wait(full"))
    start = text.rindex("\n", 0, start) + 1
    product = text[
        start : text.rindex("\n", 0, text.index("evaluate(wait_products(1))"))
    ]
    space = product[: len(product) - len(product.lstrip())]
    inside = "".join(f"    {line}\n" for line in product.splitlines())
    func = changed(text, product, f"{space}for again in range(2):\n{inside}".rstrip())
    with pytest.raises(CodegenError, match="some are in loops or branches inside"):
        lower(func, HOPPER)
