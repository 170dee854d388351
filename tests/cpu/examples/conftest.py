"""Fixtures that load an example by its path, and run what it schedules every way."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir import run
from tensorlang.ir.nodes import Function
from tensorlang.runtime import build

EXAMPLES = Path(__file__).parents[3] / "examples"
Arrays = tuple[np.ndarray[Any, Any], ...]


@pytest.fixture(scope="session")
def load() -> Callable[[str], ModuleType]:
    """`load("adam")` is the module `examples/adam.py`; its operators are made once."""

    @functools.cache
    def make(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    return make


@pytest.fixture(scope="session")
def results() -> Callable[..., list[Arrays]]:
    """What a function writes: interpreted with every check, on 1 and on 2 threads."""

    def make(func: Function, *arrays: np.ndarray, **scalars: float) -> list[Arrays]:
        def copies() -> Arrays:
            return tuple(array.copy() for array in arrays)

        def written(given: Arrays) -> Arrays:
            pairs = zip(func.params, given, strict=True)
            return tuple(array for param, array in pairs if param.role != "in")

        interpreted = copies()
        run(func, *interpreted, **scalars)
        found = [written(interpreted)]
        values = [scalars[v.name] for v in func.scalars if v.name in scalars]
        for threads in (1, 2):
            kernel = build(func, targets.host().with_threads(threads), store=False)
            given = copies()
            kernel.launch(*given, *values)
            found.append(written(given))
        return found

    return make
