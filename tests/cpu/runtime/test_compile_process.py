"""A text that LLVM could abort on is compiled by another process."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from tensorlang import build, ir
from tensorlang.errors import CodegenError
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.runtime import processes
from tensorlang.runtime.cpu import compile_process, llvm
from tensorlang.scheduling import Schedule
from tensorlang.targets import get

pytestmark = pytest.mark.llvm_only
ODD = "define i32 @f(<3 x i32> %x) {\n  %y = extractelement <3 x i32> %x, i64 1\n"


def counted(n: int) -> Schedule:
    """How often each number below 16 is there: with AVX-512, LLVM 22 aborts on 11."""
    x = ir.placeholder((n,), "i32", "x")
    k = ir.reduce_axis(n, "k")
    y = ir.compute(
        (16,), lambda b: ir.sum(x[k].equal(b.cast("i32")).cast("i32"), k), "y"
    )
    s = Schedule(ir.function("counted", [x], [y]))
    s.split("k", [None, 8])
    s.partition("k_0", n // 8)
    for lane in ("k_1", "k_1_tail"):
        s.vectorize(lane)
    return s


@pytest.mark.parametrize("n", [11, 19, 23])
def test_what_llvm_aborts_on_is_compiled(n):
    x = np.arange(n, dtype=np.int32) % 7
    kernel = build(counted(n).function, store=False)
    np.testing.assert_array_equal(kernel(x), np.bincount(x, minlength=16))
    assert "ret" in kernel.asm


def test_refusals_are_those_of_this_process():
    with pytest.raises(CodegenError, match=r"LLVM rejects the generated code(.|\n)*%z"):
        llvm.compile_module(ODD + "  ret i32 %z\n}\n")
    assert llvm.compile_module(ODD + "  ret i32 %y\n}\n")[1:4] == b"ELF"


def test_it_stays_for_the_next_text_and_another_comes_after_it():
    llvm.compile_module(ODD + "  ret i32 %y\n}\n")
    first = compile_process.COMPILER._process
    llvm.compile_module(ODD.replace("@f", "@g") + "  ret i32 %y\n}\n")
    assert first is not None
    assert compile_process.COMPILER._process is first
    first.kill()
    first.wait()
    assert llvm.compile_module(ODD + "  ret i32 %y\n}\n")
    assert compile_process.COMPILER._process is not first


def test_an_interrupted_request_leaves_no_answer_behind(monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(compile_process, "COMPILER", compile_process.Compiler())
    first = llvm.compile_module(ODD + "  ret i32 %y\n}\n")
    another = ODD.replace("@f", "@another") + "  ret i32 0\n}\n"
    with monkeypatch.context() as m:
        m.setattr(processes, "_received", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llvm.compile_module(another)
    assert llvm.compile_module(ODD + "  ret i32 %y\n}\n") == first
    compile_process.COMPILER.stop()


@pytest.mark.parametrize("interpreter", ["", "/bin/true", "python-that-is-not-there"])
def test_without_another_process_this_one_compiles(interpreter, monkeypatch):
    monkeypatch.setattr(sys, "executable", interpreter)
    monkeypatch.setattr(compile_process, "COMPILER", compile_process.Compiler())
    assert llvm.compile_module(ODD + "  ret i32 %y\n}\n")[1:4] == b"ELF"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_starts_its_own():
    llvm.compile_module(ODD + "  ret i32 %y\n}\n")
    child = os.fork()
    if not child:
        code = llvm.compile_module(ODD.replace("@f", "@h") + "  ret i32 %y\n}\n")
        compile_process.COMPILER.stop()
        os._exit(0 if code[1:4] == b"ELF" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert llvm.compile_module(ODD + "  ret i32 %y\n}\n")


def test_whole_vectors_are_compiled_here():
    op = find("math.exp")
    workload = op.workload((1024,), threads=get(None).threads)
    kernel = build(default(op, workload, get(None), {})[0].function, store=False)
    assert not compile_process.is_risky(kernel.source)
