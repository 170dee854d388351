"""Fixtures shared by all tests: golden files that `--update-golden` rewrites."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from tensorlang.frame_room import frame_room

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files"
    )
    parser.addoption(
        "--target",
        default="",
        help="run the operators' tests there: a target's name, or all that are here",
    )
    parser.addoption(
        "--ptx",
        action="store_true",
        help="run tests/cuda and tests/targets without a GPU, by a machine for PTX",
    )
    parser.addoption(
        "--share",
        type=int,
        default=1,
        metavar="N",
        help="run one in N of the sets of parameters of each test, of the long tests "
        "of each file and of some tests' random cases; one at least",
    )
    parser.addoption(
        "--every-sample",
        action="store_true",
        help="take all samples where a test takes a number of them by itself",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Settle what a process of tests may do.

    None reads or writes the user's records, trials and measurements of the machine.
    Processes of tests can be interrupted, as in the background none may be. None
    measures the machine or uses what was measured. There is a process for each core
    already: they build all kernels themselves, and PyTorch computes in one thread. PoCL
    compiles a kernel once for all sizes of groups, not again for that of a launch. No
    example of hypothesis fails because a busy machine was slow.
    """
    os.environ.setdefault("TENSORLANG_MACHINE", "published")
    os.environ.setdefault("TENSORLANG_BUILD_PROCESSES", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("POCL_WORK_GROUP_SPECIALIZATION", "0")
    with contextlib.suppress(ImportError):  # the wheel is tested without it
        from hypothesis import settings

        settings.register_profile("untimed", deadline=None)
        settings.load_profile("untimed")
    if not hasattr(config, "workerinput"):  # others inherit it
        os.environ["XDG_DATA_HOME"] = data = tempfile.mkdtemp(prefix="tensorlang-")
        config.add_cleanup(lambda: shutil.rmtree(data, ignore_errors=True))
    gc.set_threshold(1_000_000)  # programs are trees: of 700 objects, few are garbage
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One process more than cores: a tenth of the time, tests wait for others.

    Not where the variable of pytest-xdist says how many.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Recursion is quick below pytest's own frames, too."""
    pyfuncitem.obj = frame_room(pyfuncitem.obj)


_SECONDS: Counter[str] = Counter()  # by test file, as `tests/changed.py` reads them


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up how long the tests of each file take."""
    _SECONDS[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remember it, if they were run with all their parameters."""
    cache = getattr(session.config, "cache", None)
    if session.config.getoption("--share") > 1:
        return
    if cache is not None and not hasattr(session.config, "workerinput"):
        known = cache.get("tensorlang/seconds", {})
        cache.set("tensorlang/seconds", known | _SECONDS)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Take the share of them that is asked for, as one test the long ones of a file.

    Long tests start first: the last ones are short, so that workers end together.
    """
    sets: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        long = item.get_closest_marker("long") is not None
        sets[item.nodeid.partition("::" if long else "[")[0]].append(item)
    kept = set()
    for of_test in sets.values():
        of_test.sort(key=lambda item: crc32(item.nodeid.encode()))  # as if at random
        kept.update(of_test[: -(-len(of_test) // config.getoption("--share"))])
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="module", autouse=True)
def young_heap() -> None:
    """Collecting garbage is quick: what earlier files left is not looked at again.

    What compilers have freed, the allocator returns to the system.
    """
    gc.collect()
    gc.freeze()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


@pytest.fixture(autouse=True)
def numbers_of_its_own(request: pytest.FixtureRequest) -> None:
    """A test draws the same random numbers, whichever tests ran before it."""
    for value in vars(request.module).values():
        if isinstance(value, np.random.Generator):
            seed = crc32(request.node.nodeid.encode())
            value.bit_generator.state = np.random.PCG64(seed).state


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compare a text with `golden/<test file>/<test name>.txt`."""
    path = GOLDEN / request.path.stem / f"{request.node.name}.txt"

    def check(text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden file {path}; run with --update-golden"
        assert text == path.read_text(), f"differs from {path}"

    return check


@pytest.fixture
def set_constant(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[ModuleType, str, Any], None]:
    """Set a constant of a module; operators are traced anew then and after the test."""
    from tensorlang.ops.registry import operators

    def set_constant(module: ModuleType, name: str, value: Any) -> None:
        for op in operators():
            monkeypatch.setattr(op, "_traces", {})
        monkeypatch.setattr(module, name, value)

    return set_constant


@pytest.fixture(scope="session")
def share(request: pytest.FixtureRequest) -> int:
    """How many times fewer random cases a test has than with all of them."""
    return request.config.getoption("--share")


@pytest.fixture(scope="session")
def programs() -> ModuleType:
    """The strategies of `tests/programs`: random expressions and functions."""
    path = Path(__file__).parent / "programs" / "__init__.py"
    spec = importlib.util.spec_from_file_location("tensorlang_test_programs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ptx_driver(
    programs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Any]:
    """A GPU, the target `cuda`, that runs NVRTC's PTX on the CPU; see `ptx_machine`."""
    from tensorlang.runtime.cuda import toolchain

    if problem := toolchain.missing():
        pytest.skip(problem)
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "cache"))
    made = importlib.import_module(f"{programs.__name__}.ptx_driver")
    driver = made.install(monkeypatch)
    yield driver
    assert driver.errors == []
    monkeypatch.undo()
    importlib.import_module(f"{programs.__name__}.fake_cuda").forget()
