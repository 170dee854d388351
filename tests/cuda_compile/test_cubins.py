"""Machine code compiled on one machine is found on another, by its source alone."""

import re

import pytest

from tensorlang import targets
from tensorlang.ops import find
from tensorlang.runtime import building, cache
from tensorlang.runtime.cuda import toolchain


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """A cache that another kind of CPU filled, with another Python."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    building.forget()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_versions", lambda: "another machine")
        kernel = built("cuda:sm_90a")
    building.forget()
    return kernel


def built(target):
    op = find("random.bits")
    return op.build(op.workload((1 << 16,)), target)


def test_what_was_compiled_there_is_not_compiled_here(elsewhere, monkeypatch):
    update = toolchain.versions().replace("/compiler.", "/compiler.1")
    monkeypatch.setattr(toolchain, "versions", lambda: update)
    monkeypatch.setattr(toolchain, "ptx_of", None)
    monkeypatch.setattr(toolchain, "cubin_of", None)
    here = built("cuda:sm_90a")
    assert here.artifact.object_code == elsewhere.artifact.object_code
    assert here.resources == elsewhere.resources
    named = re.sub(r"cuda:sm_90a \(.*\)", "cuda (NVIDIA H100)", here.source, count=1)
    assert named != here.source  # readers are told of the GPU; compilers are not
    monkeypatch.setattr(building.backends.of(here.target), "render", lambda *_: named)
    func = here.ir
    made = building.make_artifact(building.Recipe(func), here.target)
    assert made.object_code == here.artifact.object_code


@pytest.mark.parametrize("other", ["an architecture", "compilers", "a source"])
def test_what_differs_is_compiled(other, monkeypatch):
    asked = []
    compiled = toolchain.ptx_of

    def noted(source, arch, **how):
        asked.append(arch)
        return compiled(source, arch, **how)

    monkeypatch.setattr(toolchain, "ptx_of", noted)
    arch = "sm_80" if other == "an architecture" else "sm_90a"
    if other == "compilers":
        monkeypatch.setattr(toolchain, "versions", lambda: "nvrtc 12.9")
    if other == "a source":
        op = find("random.uniform")
        op.build(op.workload((1 << 16,)), targets.get("cuda:sm_90a"))
    else:
        built(f"cuda:{arch}")
    assert asked == [arch]
