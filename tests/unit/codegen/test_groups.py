"""A CPU through OpenCL: groups of one work-item, vectors of the sizes that C has."""

import numpy as np
import pytest

from tensorlang.codegen.c_family.render import render
from tensorlang.codegen.simt.lower import lower
from tensorlang.codegen.vectors.sizes import SIZES, pieces
from tensorlang.errors import CodegenError
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Alloc, Expr, For, Shuffle, Var
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify
from tensorlang.ir.visit import walk
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.ops.registry import operators
from tensorlang.runtime.describing import signature_of
from tensorlang.targets import Target
from tensorlang.tuner.correctness.gate import Gate

CPU = Target(
    kind="opencl",
    device="a test",
    arch="cpu64",
    threads=2,
    vector_bits=512,
    vector_registers=32,
    shared_bytes=1 << 20,
)
NAMES = [
    "math.argmax",
    "math.cumsum",
    "math.logsumexp",
    "nn.avg_pool2d_grad",
    "nn.conv1d",
    "nn.dense",
    "nn.embedding_grad",
    "nn.softmax_grad",
    "nn.transpose",
    "optim.adam",
    "random.bits",
    "random.split",
]


def test_the_list_is_of_operators():
    assert set(NAMES) <= {op.id for op in operators()}


@pytest.mark.parametrize("name", NAMES)
def test_groups_do_what_the_definition_says(name):
    op = find(name)
    gate = Gate(op, op.default, op.algorithms["direct"].tolerance)
    case = gate.compiled(gate.odd)
    func = default(op, case.workload, CPU, {})[0].function
    lowered = lower(func, CPU)
    verify(lowered)
    lanes = {node.dtype.lanes for node in walk(lowered) if isinstance(node, Expr)}
    assert lanes <= set(SIZES)
    signature = signature_of(func)
    given = iter(case.scalars)
    sizes = op.sizes(case.workload)
    scalars = {
        var.name: sizes[spec.name] if spec.bound else next(given)
        for spec, var in zip(signature.scalars, lowered.scalars, strict=True)
    }
    arrays = [array.copy() for array in case.runs[0].inputs]
    run(lowered, *(array.reshape(-1) for array in arrays), **scalars)
    for number, expected in zip(case.outputs, case.runs[0].expected, strict=True):
        assert expected.wrong(arrays[number]) is None


@pytest.mark.parametrize("lanes", [1, 2, 3, 13, 16, 31, 64])
def test_pieces_cover_all_lanes_once(lanes):
    found = [
        lane for start, size in pieces(lanes) for lane in range(start, start + size)
    ]
    assert found == list(range(lanes))
    assert {size for _, size in pieces(lanes)} <= set(SIZES)


ODD = """
def odd(x: f32[40], y: Out[f32[40]], s: Out[f32[1]]):
    for i in parallel(2):
        for v in vectorized(20):
            y[i * 20 + v] = x[i * 20 + v] * 2.0
    for v in vectorized(40):
        with block("sum", vv=reduction(40, v)):
            reduce(sum, s[0], x[vv])
"""


def test_vectors_of_any_size_are_cut():
    lowered = lower(parse(ODD), CPU)
    x = np.arange(40, dtype="f4")
    y, s = np.zeros(40, "f4"), np.zeros(1, "f4")
    run(lowered, x, y, s)
    np.testing.assert_array_equal(y, x * 2)
    assert s == x.sum()


def test_what_is_picked_from_is_a_variable():
    func = default(find("nn.dense"), find("nn.dense").default, CPU, {})[0].function
    taken = [n for n in walk(lower(func, CPU)) if isinstance(n, Shuffle)]
    assert taken
    assert all(isinstance(vector, Var) for n in taken for vector in n.vectors)


SCRATCH = """
def scratch(x: f32[8, 4096], y: Out[f32[8, 4096]]):
    for i in parallel(8):
        t = alloc(f32[4096], scope="private")
        for j in range(4096):
            t[j] = x[i, j]
        for j in range(4096):
            y[i, j] = t[4095 - j]
"""


def test_large_scratch_is_local_memory_while_there_is_some():
    from dataclasses import replace

    for size, scope in ((1 << 20, "shared"), (1 << 10, "private")):
        lowered = lower(parse(SCRATCH), replace(CPU, shared_bytes=size))
        (scratch,) = [n.buffer for n in walk(lowered) if isinstance(n, Alloc)]
        assert scratch.scope == scope
        x = np.arange(8 * 4096, dtype="f4")
        y = np.zeros_like(x)
        run(lowered, x, y)
        np.testing.assert_array_equal(y.reshape(8, -1), x.reshape(8, -1)[:, ::-1])


def test_iterations_are_shared_out_among_some_groups_for_each_thread():
    text = """
def many(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in parallel(n):
        y[i] = x[i]
"""
    lowered = lower(parse(text), CPU)
    for size in (0, 1, 31, 32, 33, 1000):
        x, y = np.arange(size, dtype="f4"), np.zeros(size, "f4")
        run(lowered, x, y, n=size)
        np.testing.assert_array_equal(x, y)
    fixed = lower(parse(text.replace("[n]", "[1000]").replace("(n)", "(1000)")), CPU)
    groups = next(
        n for n in walk(fixed) if isinstance(n, For) and n.thread == "block.x"
    )
    assert groups.extent.value == 32


WAITING = """
def waiting(n: i64[1], x: f32[64], y: Out[f32[64]]):
    for k in range(n[0]):
        for i in parallel(64):
            y[i] = x[i]
"""


def test_loops_that_memory_decides_are_one_launch():
    lowered = lower(parse(WAITING), CPU)
    x, y = np.arange(64, dtype="f4"), np.zeros(64, "f4")
    run(lowered, np.array([2]), x, y)
    np.testing.assert_array_equal(x, y)


def test_loops_over_threads_inside_of_those_of_a_parallel_loop_are_refused():
    func = parse("""
def g(x: i32[4], y: Out[i32[4]]):
    for b in parallel(2):
        for c in bound(2, "thread.x"):
            with block("y", vb=spatial(4, b * 2 + c)):
                y[vb] = x[vb]
""")
    with pytest.raises(CodegenError, match="must be perfectly nested"):
        lower(func, CPU)


# all choices of the product: their defaults depend on the caches of the machine
PINNED = {
    "lanes_along": "columns",
    "rows": 14,
    "vectors": 1,
    "rows_packed": False,
    "packing": "before",
    "blocks": "nkm",
    "block_depth": 0,
    "block_strips": 1,
    "block_tiles": 1,
    "strips_first": True,
}


@pytest.mark.parametrize("name", ["nn.dense", "nn.gelu", "nn.softmax"])
def test_source(name, golden):
    op = find(name)
    dense = name == "nn.dense"
    workload = op.workload((30, 32), (16, 32)) if dense else op.default
    made = default(op, workload, CPU, PINNED if dense else {})[0]
    golden(render(lower(made.function, CPU), CPU, dict(made.knobs)))
