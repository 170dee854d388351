"""The fuzzers by name: each is a module here, whose `make` gives its `Fuzzer`."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tensorlang_test_programs.fuzzing import Fuzzer

NAMES: Final = ("lanewise", "onnx", "records", "schedules", "scopes", "text")


def fuzzer(name: str, *options: str) -> Fuzzer:
    """The fuzzer of a name; its module is imported now, and what it needs with it."""
    made: Fuzzer = import_module(f"{__name__}.{name}").make(*options)
    return made
