"""Places in registers: what cancels in them has no name."""

import pytest

from tensorlang.codegen.simt.register_indices import substitute_register_indices
from tensorlang.ir.text.parser import parse

FORM = """
def f(x: f32[4096], y: Out[f32[9]], *, n: i64):
    for b in range(n):
        for i in range(4):
            r = alloc(f32[64], scope="{scope}")
            t: i64 = b * 16 + i + 1
            u: i64 = t * 2
            y[i] = r[{index}]
"""


def place(index, scope="register"):
    made = substitute_register_indices(parse(FORM.format(scope=scope, index=index)))
    return str(made).split("r[")[1].split("]")[0]


@pytest.mark.parametrize(
    ("index", "wanted"),
    [
        ("t - b * 16", "i + 1"),
        ("u - b * 32", "i * 2 + 2"),
        ("(t - b * 16) * 4 + i", "i * 5 + 4"),
        ("t", "t"),  # what is left varies as much
        ("i", "i"),
    ],
)
def test_what_cancels(index, wanted):
    assert place(index) == wanted


def test_memory_of_others_keeps_its_names():
    assert place("t - b * 16", "shared") == "t - b * 16"
