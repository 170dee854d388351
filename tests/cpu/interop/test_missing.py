"""Without the other system there is one sentence."""

import importlib
import sys

import pytest

from tensorlang.errors import ArgumentError


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_without_it(monkeypatch, name) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"tensorlang.interop.{name}", raising=False)
    with pytest.raises(ArgumentError, match=r"pip install 'tensorlang\[interop\]'"):
        importlib.import_module(f"tensorlang.interop.{name}")
