"""The operators' tests on other targets than LLVM.

Every module of `TWICE` runs on OpenCL and CUDA as well, where they are: one of each
family, that covers most of what their lowering can get wrong in a few seconds.

    pytest tests/cpu/ops --target opencl    # every test that can, on this one alone
    pytest tests/cpu/ops --target all       # on every target that is here

A test of LLVM's alone (its machine code, its schedules, records of this CPU) is marked
`llvm_only`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorlang import targets
from tensorlang.ops.registry import operators

TWICE = frozenset(())


def present() -> list[str]:
    """The kinds of target that this machine has."""
    return [kind for kind, problem in targets.known().items() if not problem]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test the targets that it runs on, where they are not LLVM alone."""
    asked = metafunc.config.getoption("--target")
    names = ["llvm"]
    if asked == "all" or (not asked and metafunc.module.__name__ in TWICE):
        names = present()
    elif asked:
        names = [asked]
    if metafunc.definition.get_closest_marker("llvm_only"):
        names = ["llvm"]
    if names != ["llvm"]:
        metafunc.parametrize("on", names, indirect=True)


@pytest.fixture(autouse=True)
def on(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The target of calls that name none, while the test runs."""
    name = getattr(request, "param", "llvm")
    if name == "llvm":
        yield name
        return
    _forget()
    with monkeypatch.context() as patch:
        patch.setenv(targets.TARGET_VARIABLE, name)
        yield name
    _forget()


def _forget() -> None:
    """Look for kernels anew: those that are held are of another target."""
    for op in operators():
        op.forget()
