"""What a program loads at which moment: names of modules, for times would waver."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, numpy
before = set(sys.modules)
from tensorlang.ops import random
print(*sorted(set(sys.modules) - before))
random.bits(random.key(0), (1000,))
print(*sorted(set(sys.modules) - before))
"""
COMPILERS = ("jinja2", "llvmlite", "optuna", "ml_dtypes", "typer", "platformdirs")
# what makes IR, schedules it and prints it: a warm call has its code already
GENERATORS = (
    "tensorlang.codegen",
    "tensorlang.ir.nodes",
    "tensorlang.ir.text.parser",
    "tensorlang.ir.text.printer",
    "tensorlang.ir.intrinsics",
    "tensorlang.scheduling",
    "tensorlang.schedules",
    "tensorlang.ops.random.definitions",
)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> dict[str, set[str]]:
    """Modules after the import and after a call, in a cold and in a warm process."""
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    found = {}
    for state in ("cold", "warm"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "TENSORLANG_CACHE": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        for moment, line in zip(
            ("import", "call"), done.stdout.splitlines(), strict=True
        ):
            found[f"{state} {moment}"] = set(line.split())
    return found


def test_importing_operators_loads_nothing_that_builds_or_runs(loaded):
    modules = loaded["warm import"]
    assert modules.isdisjoint(COMPILERS)
    assert modules.isdisjoint(GENERATORS)
    assert not any(name.startswith("tensorlang.runtime.") for name in modules)


def test_a_warm_call_loads_nothing_that_generates(loaded):
    modules = loaded["warm call"]
    assert "llvmlite" in modules  # it links the kernel
    assert "jinja2" not in modules
    assert modules.isdisjoint(GENERATORS)


def test_a_cold_call_loads_the_primitives_that_its_schedule_uses(loaded):
    modules = loaded["cold call"]
    assert modules >= {"jinja2", "tensorlang.codegen.lower", "tensorlang.ir.nodes"}
    assert "tensorlang.scheduling.steps.partition" in modules
    unused = ("rfactor", "tensorize", "compute_at", "cache_write", "reindex", "pad")
    assert modules.isdisjoint(f"tensorlang.scheduling.steps.{name}" for name in unused)
    assert modules.isdisjoint(("optuna", "typer", "tensorlang.ir.interpreter"))
