"""Rotations that are products: the same amounts always, less than half of all."""

import pytest

from tensorlang.codegen.c_family.rotations import products
from tensorlang.ir.dtypes import u32, u64
from tensorlang.ir.nodes import Buffer, Call, Const, Store, Var, as_expr, seq

WORD, LONG = Var("x", u32), Var("l", u64)
OUT = Buffer("out", u32, (as_expr(1),))


def rotated(amounts, word=WORD):
    """Statements that rotate a word by each amount."""
    calls = (Call("rotl", (word, Const(by, word.dtype)), word.dtype) for by in amounts)
    return seq(*(Store(OUT, (as_expr(0),), call.cast(u32)) for call in calls))


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ([13, 15, 26, 6, 17, 29, 16, 24] * 2 + [13, 15, 26, 6], {13, 15, 26}),
        ([5] * 20, set()),
        (range(1, 11), {1, 2, 3, 4}),
        ([1, 2, 3], set()),
        ([0, 32, 40] * 5, set()),
    ],
)
def test_a_share_of_the_rotations(amounts, expected):
    assert products(rotated(amounts)) == expected


def test_words_of_64_bits_are_left_alone():
    assert products(rotated(range(1, 30), LONG)) == set()


@pytest.mark.parametrize("by", range(1, 32))
def test_the_halves_of_a_product_are_the_rotation(by):
    for x in (0, 1, 0x80000001, 0xDEADBEEF, 0xFFFFFFFF):
        whole = x << by
        halves = (whole & 0xFFFFFFFF) | whole >> 32
        assert halves == ((x << by | x >> (32 - by)) & 0xFFFFFFFF)
