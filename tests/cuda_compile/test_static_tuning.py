"""Tuning without a GPU: by static cost, and marked so."""

import pytest

from tensorlang import records, targets, tune
from tensorlang.cli.app import app
from tensorlang.errors import TargetError
from tensorlang.ir.text.parser import parse
from tensorlang.machine.gpus import DEVICES
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.ops.kernels.requests import requested
from tensorlang.runtime import build
from tensorlang.tuner.search.pruning import overrun, refusal
from tensorlang.tuner.static.cost import static_cost

SM = targets.get("cuda:sm_90a")
LARGE = (1 << 20,)
PRESENT = [kind for kind, problem in targets.availability().items() if not problem]


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Records and trials of the test's own."""
    monkeypatch.setenv(records.FOLDER_VARIABLE, str(tmp_path / "records"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    records.forget()
    yield
    records.forget()


def told(*arguments):
    with pytest.raises(SystemExit) as end:
        app(arguments)
    return end.value.code


def cost(name, *shapes, dtype=None, gpu=None, **pins):
    op = find(name)
    workload = requested(op, shapes, dtype, {})
    kernel = build(default(op, workload, SM, pins)[0], SM)
    return static_cost(kernel, op, workload, gpu)


def test_wide_accesses_and_many_threads_cost_less():
    assert cost("math.multiply", LARGE, LARGE).bound == "memory"
    wide = cost("nn.gelu", LARGE, lanes=4, threads=256)
    narrow = cost("nn.gelu", LARGE, lanes=1, threads=32, steps=32)
    assert wide.seconds < narrow.seconds
    assert wide.occupancy > narrow.occupancy


def test_larger_tiles_cost_less_where_there_are_enough_of_them():
    def of(side, sums):
        square = (side, side)
        return cost("nn.dense", square, square, rows=sums, columns=sums).seconds

    assert 2e-3 < of(4096, 8) < of(4096, 4) < 1e-2
    assert 5e-6 < of(512, 4) < of(512, 8) < 1e-3  # 16 blocks for 132 processors


def test_products_of_warpgroups_cost_less_by_larger_tiles_and_longer_rings():
    def of(rows, k, **knobs):
        told = cost("nn.dense", (rows, k), (rows, k), dtype="bf16", **knobs)
        return 2 * rows**2 * k / told.seconds / DEVICES["H100"].peak, told.bound

    usual, bound = of(4096, 4096)
    assert bound == "cache"  # without multicast, the L2 cache's rate
    assert 0.7 < usual < 0.9
    less = of(4096, 4096, group_columns=128)[0]
    assert of(4096, 4096, instruction="mma")[0] < less < usual
    small = {"warpgroups": 1, "group_columns": 64, "few_rows": 0}
    short, bound = of(512, 8192, ring=2, **small)
    assert bound == "latency"
    assert short < 0.8 * of(512, 8192, ring=4, **small)[0]


def test_a_faster_memory_helps_what_is_bound_by_it():
    h100, h200 = (
        cost("nn.gelu", (1 << 28,), dtype="f32", gpu=gpu).seconds
        for gpu in DEVICES.values()
    )
    assert h200 < 0.8 * h100


def test_a_search_files_a_guess_that_says_so(capsys):
    op = find("nn.dense")
    (report,) = tune(
        op,
        shapes=[(1024, 1024), (1024, 1024)],
        trials=8,
        budget=None,
        target=SM,
        compile_only=True,
    )
    assert report.static
    assert report.record is not None, report
    assert "nothing was run" in report.note
    assert not report.spent.keys() & {"check", "measure", "finals"}
    (choice,) = records.lookup(report.workload, SM)
    assert choice.record.static
    assert choice.record.seconds < choice.record.default_seconds
    assert choice.reason == "exact; chosen by static cost, not measured"
    assert told("records", "ls", "dense") == 0
    assert "static, about" in capsys.readouterr().out
    explain = ("records", "explain", "dense", "--shape", "1024x1024x1024")
    assert told(*explain, "--target", "cuda:sm_90a") == 0
    assert "not measured" in capsys.readouterr().out


def test_the_command_says_what_is_estimated(capsys):
    small = ("--shape", "4096", "--trials", "2")
    assert told("tune", "gelu", "--target", "cuda:sm_80", *small, "--compile-only") == 0
    out = capsys.readouterr().out
    assert "by static cost for cuda:sm_80" in out
    assert "nothing was run" in out


SPILLING = """
def f(x: f32[512], y: Out[f32[512, 200]]):
    for b in bound(1, "block.x"):
        for t in bound(512, "thread.x"):
            r = alloc(f32[200], scope="register")
            for i in unrolled(200):
                r[i] = x[t] * cast(f32, i)
            for k in range(100):
                for j in unrolled(200):
                    r[j] = r[j] * x[k] + r[(j + 77) % 200]
            for m in unrolled(200):
                y[t, m] = r[m]
"""


def test_what_spills_or_holds_too_much_is_refused_with_a_reason():
    assert "holds 208 registers of accumulators alone" in refusal(parse(SPILLING), SM)
    assert "are spilled" in overrun(build(parse(SPILLING), SM))
    gelu = find("nn.gelu")
    assert overrun(gelu.build(gelu.default, SM)) == ""


def test_what_is_compiled_only_says_so(capsys):
    assert told("verify", "gelu", "--target", "cuda:sm_80") == 0
    assert "pass  nn.gelu" in (out := capsys.readouterr().out)
    assert "compiled only, not run" in out
    assert told("bench", "gelu", "--target", "cuda:sm_80") == 2
    assert "can only be compiled for here, not measured" in capsys.readouterr().err


@pytest.mark.skipif("cuda" in PRESENT, reason="a GPU is here, which cuda stands for")
def test_cuda_without_a_gpu_is_the_usual_architecture(capsys):
    small = ("--shape", "4096", "--target", "cuda")
    assert told("show", "gelu", *small, "--stage", "ptx") == 0
    said = capsys.readouterr()
    assert ".target sm_90a" in said.out
    assert said.err == "tlang: no GPU found: compiling for cuda:sm_90a\n"


def test_what_cannot_be_tuned_is_told_in_a_sentence(capsys):
    for target, said in (
        ("cuda:sm_80", "no GPU to measure on; --compile-only searches"),
        ("cuda:7", "--compile-only searches by static cost instead"),
    ):
        with pytest.raises(TargetError, match=said):
            tune("nn.gelu", target=target)
        assert told("tune", "gelu", "--target", target) == 2
        assert "--compile-only" in capsys.readouterr().err
    with pytest.raises(TargetError, match="tune it without --compile-only"):
        tune("nn.gelu", target="llvm", compile_only=True)
