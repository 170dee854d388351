# ruff: noqa: ARG005 - definitions that are refused use nothing
"""Operators as a user meets them: decorated, called, overloaded, looked into."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import ArgumentError, OperatorError
from tensorlang.ir import parse
from tensorlang.ir.definitions.frontend import compute, reduce_axis, scalar, sum
from tensorlang.ops import algorithm, find, nn, operator, operators, pin, random, select
from tensorlang.ops.pins import pinned
from tensorlang.ops.spec.examples import arguments
from tensorlang.tuner.correctness.ragged import served_workloads
from tensorlang.workload import Workload


@operator("test.scaled_sum", aliases=("scaled_sum",))
def scaled_sum(x, y, *, scale=1.0):
    """The sum of y and a multiple of x."""
    return compute(x.shape, lambda i: x[i] * scale + y[i])


@operator("test.parts")
def parts(x):
    """Two results of different shapes."""
    k = reduce_axis(x.shape[1])
    total = compute((x.shape[0],), lambda i: sum(x[i, k], k), "total")
    return total, compute(x.shape, lambda i, j: x[i, j] * 2.0, "twice")


@algorithm(scaled_sum, "other_way_round")
def other_way_round(x, y, *, scale=1.0):
    return compute(x.shape, lambda i: y[i] + scale * x[i])


A, B = (np.random.default_rng(n).standard_normal(100).astype("f4") for n in (1, 2))


# ----------------------------------------------------------------- a user's operator


def test_a_decorated_definition_computes():
    assert (scaled_sum(A, B, scale=2.0) == A * np.float32(2) + B).all()
    assert (scaled_sum(A, B) == A + B).all()


def test_it_fills_out():
    out = np.zeros(100, np.float32)
    assert scaled_sum(A, B, out=out) is out
    assert (out == A + B).all()


def test_several_results():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    total, twice = parts(x)
    assert total.tolist() == [3, 12]
    assert (twice == 2 * x).all()


def test_what_it_says_without_data():
    assert scaled_sum.shape((8,), (8,)) == (8,)
    assert parts.shape((3, 5)) == ((3,), (3, 5))
    assert scaled_sum.flops((8,), (8,)) == 16
    assert scaled_sum.bytes((8,), (8,)) == 96
    assert scaled_sum.__doc__ == "The sum of y and a multiple of x."


def test_torch_gives_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    result = scaled_sum(torch.from_numpy(A), torch.from_numpy(B))
    assert isinstance(result, torch.Tensor)
    assert (result.numpy() == A + B).all()


def test_algorithms_are_definitions_of_their_own():
    assert list(scaled_sum.algorithms) == ["direct", "other_way_round"]
    workload = scaled_sum.workload((8,), (8,), scale=2.0)
    texts = [
        repr(scaled_sum.function(workload, name)) for name in scaled_sum.algorithms
    ]
    assert "x[vi] * 2.0 + y[vi]" in texts[0]
    assert "y[vi] + x[vi] * 2.0" in texts[1] or "y[vi] + 2.0 * x[vi]" in texts[1]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: scaled_sum(A), "takes 2 arrays (x, y), got 1"),
        (lambda: scaled_sum(x=A), "takes 2 arrays (x, y), got 1"),
        (lambda: scaled_sum(A, B, A), "takes 2 arrays (x, y), got 3"),
        (
            lambda: scaled_sum(A, x=B),
            "has x by position and by name; the order is x, y",
        ),
        (lambda: scaled_sum(A, B, factor=2.0), "has no attribute factor; it has scale"),
        (lambda: parts(A[None], out=(A,)), "has 2 results, out= gives 1"),
        (lambda: scaled_sum(A, 3), "argument 1"),
    ],
)
def test_wrong_calls(call, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        call()


def test_an_array_after_an_attribute_is_missing():
    @operator("test_operators.powers")
    def powers(x, count: int, y):
        return compute(x.shape, lambda i: x[i] * count + y[i])

    for args in ((A,), (A, 2)):
        with pytest.raises(ArgumentError, match=r"powers needs (count, )?y$"):
            powers(*args)


@pytest.mark.parametrize(
    "definition", [lambda x, out: x, lambda *xs: xs, lambda x, **more: x]
)
def test_definitions_that_are_none(definition):
    with pytest.raises(OperatorError):
        operator("test.wrong")(definition)


def scan(x):
    return parse(
        f"def scan(x: f32[{x.shape[0].value}], y: Out[f32[4]]):\n"
        "    y[0] = x[0]\n"
        "    for i in range(3):\n"
        "        y[i + 1] = y[i] + x[i + 1]"
    )


def test_a_definition_may_be_ir_text():
    summed = operator("test.scan")(scan)
    assert summed(A[:4]).tolist() == np.add.accumulate(A[:4]).tolist()
    assert summed.shape((4,)) == (4,)


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        (lambda x: None, "its definition returned None; return what compute"),
        (lambda x: x, "its definition returned"),
        (lambda x: (), r"its definition returned \(\)"),
        (lambda x: parse("def f(y: Out[f32[4]]):\n    y[0] = 1.0"), "take 1 inputs"),
        (
            lambda x: parse("def f(x: f32[n], y: Out[f32[4]], *, n: i64):\n    pass"),
            "and no scalars",
        ),
        (
            lambda x: parse("def f(x: f64[4], y: Out[f32[4]]):\n    y[0] = 1.0"),
            r"but the array is f32\[4\]",
        ),
        (
            lambda x: compute(x.shape, lambda i: x[i] * scalar("alpha")),
            "nothing in its definition says what alpha is",
        ),
    ],
)
def test_definitions_that_define_nothing(definition, says):
    op = operator(f"test.nothing{len(operators())}")(definition)
    with pytest.raises(OperatorError, match=says):
        op(A[:4])


# -------------------------------------------------------------------------- names


def test_operators_are_found_by_id_alias_and_place():
    assert find("random.bits") is find("bits") is random.bits
    assert find("test.scaled_sum") is find("scaled_sum") is scaled_sum
    assert find("tensorlang.ops.random:bits") is random.bits


def test_an_operator_made_by_exec_stands_in_no_module():
    scope: dict[str, object] = {}
    exec("def definition(x): return x", scope)  # as in a notebook or a page's example
    assert operator("test.executed")(scope["definition"]).module == "__main__"


def test_a_family_stands_for_its_members():
    members = {op.id for op in select("threefry")}
    assert {"random.bits", "random.split", "random.normal", "nn.dropout"} <= members
    assert select("random.bits") == (random.bits,)


def test_every_operator_of_the_library_is_documented():
    for op in operators():
        if op.module.startswith("tensorlang."):
            assert op.__doc__, op.id
            assert op.default is not None, op.id


def small(op):
    """A workload that takes no time, of those that the operator's kernel serves."""
    if found := next(served_workloads(op, op.default), None):
        return found
    crop = [tuple(min(extent, 8) for extent in shape) for shape in op.default.shapes]
    return op.default.with_shapes(*crop)


@pytest.mark.parametrize(
    "op",
    [op for op in operators() if op.module.startswith("tensorlang.")],
    ids=lambda op: op.id,
)
def test_example_arguments_fit_the_kernel(op):
    workload = small(op)
    arrays, scalars = arguments(op, workload, seed=1)
    op.build(workload)(*arrays, *scalars)
    again, _ = arguments(op, workload, seed=1)
    func = op.function(workload)
    for param, first, second in zip(func.params, arrays, again, strict=True):
        if param.role == "in":
            assert (first == second).all()


# ----------------------------------------------------------------------- kernels


def test_the_kernel_that_would_run_uses_no_key():
    key, out = random.key(0), np.empty(16, np.uint32)
    for _ in range(2):
        kernel = random.bits.kernel(key, (16,), "uint32", out=out)
        assert kernel.name == "random_bits"
        random.bits(key.clone(), (16,), "uint32", out=out)
    assert key.states == "fresh"
    assert nn.dropout.kernel(A, 0.5, key=key).name == "nn_dropout"


def test_one_kernel_serves_every_size():
    kernels = {
        random.bits.kernel(random.key(0), (size,)) for size in (0, 1, 16, 1000, 65537)
    }
    assert len(kernels) == 1


def test_threads_share_a_kernel():
    found, gate = [], threading.Barrier(4)

    def call():
        gate.wait()
        key = random.key(5, impl="threefry2x32-17")
        found.append(random.bits(key, (1000,)).tobytes())

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


# ---------------------------------------------------------------------- overloads


class Symbolic:
    """Takes calls over and tells what it was given."""

    ndim = 0

    def __tensorlang_op__(self, op, args, kwargs):
        return op.id, args, kwargs


class Passing:
    def __tensorlang_op__(self, op, args, kwargs):
        return NotImplemented


def test_an_argument_takes_the_call_over():
    s, key = Symbolic(), random.key(0)
    assert random.bits(s, (3,)) == ("random.bits", (s, (3,)), {})
    assert random.split(s) == ("random.split", (s,), {})
    assert random.fold_in(s, 3) == ("random.fold_in", (s, 3), {})
    assert random.fold_in(key, s)[0] == "random.fold_in"
    assert random.categorical(key, s)[0] == "random.categorical"
    assert nn.dropout(s, 0.5, key=key) == ("nn.dropout", (s, 0.5), {"key": key})
    assert nn.dropout(A, 0.5, key=s)[0] == "nn.dropout"
    assert nn.dropout_train(s, key, 0.5)[0] == "nn.dropout_train"
    assert scaled_sum(A, s, scale=3.0) == ("test.scaled_sum", (A, s), {"scale": 3.0})
    assert key.states == "fresh"


def test_an_argument_may_pass():
    s = Symbolic()
    assert scaled_sum(Passing(), s)[0] == "test.scaled_sum"
    with pytest.raises(ArgumentError, match="cannot be applied to a Passing"):
        scaled_sum(Passing(), A)


# --------------------------------------------------------------------- the outside


def test_workloads_travel_as_json():
    workload = random.bits.workload((1 << 20,), stream="packed", threads=2)
    assert Workload.from_json(workload.to_json()) == workload
    assert hash(Workload.from_json(workload.to_json())) == hash(workload)
    assert "random.bits(u32[2], shape[1048576], dtype=u32" in str(workload)


def test_pins_are_read_from_the_environment(monkeypatch):
    monkeypatch.setenv(
        "TENSORLANG_PIN", "random.bits:lanes=32,nontemporal=true,threefry:x=a"
    )
    assert pinned(random.bits) == {"lanes": 32, "nontemporal": True, "x": "a"}
    assert pinned(scaled_sum) == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nn.y:z=1", "TENSORLANG_PIN names no operator: no operator is called 'nn.y'"),
        ("random.uniform:zzz=1", "fixes zzz, which is no knob of random.uniform"),
        ("reefry:zzz=1,random.uniform:zzz=1", "no operator is called 'reefry'"),
    ],
)
def test_pins_of_nothing_are_refused(monkeypatch, text, complaint):
    monkeypatch.setenv("TENSORLANG_PIN", text)
    random.uniform.forget()
    with pytest.raises(ArgumentError, match=complaint):
        random.uniform(random.key(0), (3,))
    random.uniform.forget()


def test_pins_of_an_operator_without_a_family(monkeypatch):
    monkeypatch.setenv("TENSORLANG_PIN", "test.scaled_sum:zzz=1")
    scaled_sum.forget()
    with pytest.raises(ArgumentError, match=r"is no knob of test\.scaled_sum"):
        scaled_sum(A, B)
    scaled_sum.forget()


@pytest.mark.parametrize("text", ["lanes=3", "random.bits:lanes", "random.bits:=3"])
def test_pins_that_are_none(monkeypatch, text):
    monkeypatch.setenv("TENSORLANG_PIN", text)
    with pytest.raises(ArgumentError, match="is not op:knob=value"):
        pinned(random.bits)


def test_a_file_of_pins_is_refused_by_line(monkeypatch, tmp_path):
    monkeypatch.setenv("TENSORLANG_RECORDS", str(tmp_path))
    monkeypatch.delenv("TENSORLANG_PIN", raising=False)
    file = tmp_path / "pins.txt"
    for twice in ("random.bits:lanes=8,lanes=16", "random.bits:lanes=8,bits:lanes=16"):
        file.write_text(f"dense:rows=4\n\n{twice}\n")
        with pytest.raises(ArgumentError, match=f"{file}:3: .* gives lanes twice"):
            pinned(random.bits)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ArgumentError, match=f"{file} is not text in UTF-8"):
        pinned(random.bits)


def test_pins_are_made_in_code_in_a_file_and_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TENSORLANG_RECORDS", str(tmp_path))
    monkeypatch.delenv("TENSORLANG_PIN", raising=False)
    given = random.key(0), (3000,)

    def lanes():
        return random.bits.kernel(*given).artifact.knobs["lanes"]

    default = lanes()
    values = [lane for lane in (16, 32, 64) if lane != default]
    (tmp_path / "pins.txt").write_text(f"random.bits:lanes={values[0]}\n\n")
    random.bits.forget()
    assert lanes() == values[0]
    with pin(f"random.bits:lanes={values[1]}"):
        monkeypatch.setenv("TENSORLANG_PIN", f"threefry:lanes={default},chunk=32")
        assert pinned(random.bits) == {"lanes": values[1], "chunk": 32}
        assert lanes() == values[1]
    assert lanes() == default
    held = pin("threefry:lanes=8")
    assert pinned(random.normal) == {"lanes": 8, "chunk": 32}
    held.close()
    random.bits.forget()
    for bad in ("lanes", "nn.nothing:lanes=3", "random.bits:lanes"):
        with pytest.raises(ArgumentError, match=r"tensorlang\.ops\.pin"):
            pin(bad)


def test_an_algorithm_is_pinned():
    x, w = np.ones((1, 8, 16, 16), np.float32), np.ones((16, 8, 3, 3), np.float32)
    names = [
        a.name
        for a in nn.conv2d.algorithms.values()
        if a.suits(nn.conv2d.workload(x.shape, w.shape), targets.host().features)
    ]
    expected = nn.conv2d(x, w)
    for name in names:
        with pin(f"nn.conv2d:algorithm={name}"):
            np.testing.assert_allclose(nn.conv2d(x, w), expected, rtol=1e-4)
    with (
        pin("nn.conv2d:algorithm=magic"),
        pytest.raises(
            ArgumentError, match=r"fixes the algorithm magic; nn\.conv2d has"
        ),
    ):
        nn.conv2d(x, w)


def test_the_library_imports_lightly():
    program = (
        "import sys\n"
        "from tensorlang.ops import math, nn, optim, random\n"
        "heavy = ('llvmlite', 'jinja2', 'optuna', 'ml_dtypes', 'typer', 'rich',\n"
        "         'tensorlang.ir.nodes', 'tensorlang.codegen', 'pyopencl', 'pycuda',\n"
        "         'cuda')\n"
        "print([name for name in sys.modules\n"
        "       if name in heavy or name.startswith('tensorlang.runtime.')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert ran.stdout.strip() == "[]"
