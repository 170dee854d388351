"""Operators of the examples in f16 and bf16, checked as their docstrings say."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tensorlang.cli.app import app

SHAPES = {
    "attention": "2x9x8,2x17x8,2x17x8",
    "blur": "20x30",
    "embedding_bag": "50x16,7x5",
    "int8_matmul": "9x21,17x21,17",
    "rms_swiglu": "7x33,33,7x33",
    "spmv": "11,20,20,10",
}


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", SHAPES)
def test_an_example_in_narrow_floats(load, name, dtype):
    load(name)
    options = ["--shape", SHAPES[name], "--dtype", dtype]
    made = CliRunner().invoke(app, ["verify", f"{name}:{name}", *options])
    assert made.exit_code == 0, made.output
    assert "matches the interpreter" in made.output
