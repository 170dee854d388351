"""Kernels of hand-written LLVM IR, and a cache that no other test sees."""

import pytest

from tensorlang import targets
from tensorlang.runtime.cpu import llvm, wrapper
from tensorlang.runtime.cpu.backend import LLVMKernel
from tensorlang.runtime.kernel import Artifact
from tensorlang.runtime.signature import BufferSpec, ScalarSpec, Signature

QUERIES = """
define i64 @NAME.team(ptr %args) {
  ret i64 TEAM
}
define i64 @NAME.workspace(ptr %args) {
  ret i64 WORKSPACE
}
declare void @tensorlang_barrier(ptr, i64)
"""


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("TENSORLANG_CACHE", str(folder))
    return folder


def buffer(name, dtype="f32", role="in", shape=("n",)):
    return BufferSpec(name, dtype, role, shape)


@pytest.fixture
def assemble():
    """Make a Kernel of LLVM IR that defines @NAME, with a team and a workspace."""

    def make(text, buffers, scalars=(), *, team=1, workspace=0, threads=8, aliases=()):
        bound = {d for b in buffers for d in b.shape if isinstance(d, str)}
        signature = Signature(
            "hand",
            tuple(buffers),
            tuple(ScalarSpec(name, dtype, name in bound) for name, dtype in scalars),
            tuple(aliases),
        )
        queries = QUERIES.replace("TEAM", str(team)).replace(
            "WORKSPACE", str(workspace)
        )
        source = (text + queries).replace("NAME", "hand")
        code = llvm.compile_module(source)
        wrapped = wrapper.wrapper_code(
            signature, threads, independent=wrapper.is_barrier_free(source)
        )
        artifact = Artifact(signature, code, wrapped, source=source)
        return LLVMKernel(artifact, targets.host())

    make.buffer = buffer
    make.scale = SCALE
    return make


# y[i] = x[i] * rate, shared by the team; fault 3 where rate is negative.
SCALE = """
define i32 @NAME(ptr %args, i64 %tid, i64 %team, ptr %barrier) {
  %x = load ptr, ptr %args
  %y.at = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %y.at
  %n.at = getelementptr i64, ptr %args, i64 2
  %n = load i64, ptr %n.at
  %rate.at = getelementptr i64, ptr %args, i64 3
  %rate = load float, ptr %rate.at
  %first.0 = mul i64 %n, %tid
  %first = udiv i64 %first.0, %team
  %after = add i64 %tid, 1
  %last.0 = mul i64 %n, %after
  %last = udiv i64 %last.0, %team
  br label %loop
loop:
  %i = phi i64 [ %first, %0 ], [ %next, %body ]
  %more = icmp slt i64 %i, %last
  br i1 %more, label %body, label %done
body:
  %x.i = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %x.i
  %scaled = fmul float %value, %rate
  %y.i = getelementptr float, ptr %y, i64 %i
  store float %scaled, ptr %y.i
  %next = add i64 %i, 1
  br label %loop
done:
  call void @tensorlang_barrier(ptr %barrier, i64 %team)
  %negative = fcmp olt float %rate, 0.0
  %code = select i1 %negative, i32 3, i32 0
  ret i32 %code
}
"""


@pytest.fixture
def scale(assemble):
    return assemble(
        SCALE,
        [buffer("x"), buffer("y", role="out")],
        [("n", "i64"), ("rate", "f32")],
        team=1 << 20,
    )


@pytest.fixture
def only_fast(monkeypatch):
    """Fail where a call is not taken by the emitted wrapper."""
    from tensorlang.runtime import calling

    def refuse(*_):
        raise AssertionError("the call went the slow way")

    monkeypatch.setattr(calling, "run", refuse)
