"""The operators' tests on other targets than LLVM.

Of every module of `TWICE`, each test's first case runs on OpenCL and CUDA as well,
where they are: that keeps to a minute what would take an hour, for drivers compile
slowly. All of it is asked for by name:

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

# without those whose operators are exact: tests/targets compares their bits
TWICE = frozenset(
    (
        "test_batch_norm",
        "test_convolution",
        "test_cross_entropy",
        "test_dense",
        "test_embedding",
        "test_matmul",
        "test_norms",
        "test_pooling",
        "test_reductions",
        "test_softmax",
    )
)


def present() -> list[str]:
    """The kinds of target that this machine has."""
    return [kind for kind, problem in targets.availability().items() if not problem]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test the targets that it runs on, where they are not LLVM alone."""
    asked = metafunc.config.getoption("--target")
    names = ["llvm"]
    module = metafunc.module.__name__.rpartition(".")[2]
    if asked == "all" or (not asked and module in TWICE):
        names = present()
    elif asked:
        names = [asked]
    if metafunc.definition.get_closest_marker("llvm_only"):
        names = ["llvm"]
    if names != ["llvm"]:
        metafunc.parametrize("on", names, indirect=True)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Keep each test's first case on other targets than LLVM, unless all are wanted."""
    if config.getoption("--target"):
        return
    seen: set[tuple[object, str, str]] = set()
    kept, rest = [], []
    for item in items:
        known = getattr(item, "callspec", None)
        name = known.params.get("on", "llvm") if known else "llvm"
        case = (item.parent, getattr(item, "originalname", ""), name)
        (rest if name != "llvm" and case in seen else kept).append(item)
        seen.add(case)
    if rest:
        config.hook.pytest_deselected(items=rest)
        items[:] = kept


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
