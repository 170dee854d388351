"""For processes of a rehearsal: the tests' machine for PTX in place of a GPU.

Python imports this module at its start when this folder is on PYTHONPATH.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# processes that use the GPU; pytest has an option of its own
USERS = ("tensorlang", "tlang", "benchmarks.gpu", "multiprocessing")
# codes that functions of the driver give, and "NVRTC" if it is missing, as JSON
FAILURES = "TENSORLANG_REHEARSED_FAILURES"
SMALL = 4096  # bytes that are overwritten between two runs


def install() -> None:
    """Let this process see a GPU that executes PTX, for all of its life."""
    path = ROOT / "tests" / "programs" / "__init__.py"
    spec = importlib.util.spec_from_file_location("tensorlang_test_programs", path)
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    package.__path__ = [str(path.parent)]
    sys.modules[spec.name] = package  # its parts alone: the package draws programs
    import pytest
    from tensorlang_test_programs import fake_cuda, ptx_driver

    from tensorlang.runtime.cuda import toolchain
    from tensorlang.tuner.measurement import timers

    fake_cuda.ATTRIBUTES |= {"MULTIPROCESSOR_COUNT": 4, "L2_CACHE_SIZE": SMALL}
    driver = ptx_driver.install(pytest.MonkeyPatch(), library="cuda.bindings")
    driver.fail = json.loads(os.environ.get(FAILURES, "{}"))
    if driver.fail.pop("NVRTC", 0):
        toolchain._library = lambda: None  # type: ignore[assignment] # noqa: SLF001
    timers._FLUSHED_BYTES, timers._WARM_UP = SMALL, 0.0  # noqa: SLF001


if any(word in part for part in sys.orig_argv[1:] for word in USERS):
    install()
