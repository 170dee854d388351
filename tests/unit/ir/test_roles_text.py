"""Roles and barrier objects: their text, and what the verifier asks of them."""

import re

import pytest

from tensorlang.errors import TensorlangError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify

RING = """\
def f(x: f32[8], y: Out[f32[8]]):
    s = alloc(f32[2], scope="shared")
    full = barrier_object(1, 2)
    for t in bound(64, "thread.x"):
        with role(t < 32, registers=24):
            with arrive(full[t % 2]):
                s[0] = x[0]
            arrive(full[1])
        with role(t >= 32):
            wait(full[t % 2], t // 2 - 1)
            y[0] = s[0]
"""


def test_text_of_roles_reads_back():
    func = parse(RING)
    verify(func)
    assert show(func) == RING


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("t < 32,", "t,", "condition of role is i64; it must be one bool"),
        ("registers=24", "registers=25", "24 to 240 registers, in eights, not 25"),
        ("barrier_object(1, 2)", "barrier_object(0, 2)", "full: 0 arrivals, 2 objects"),
        ("wait(full[", "wait(empty[", "no barrier object 'empty' is declared here"),
        ("t // 2 - 1)", "i32(1))", "the phase of full needs operands of one type"),
        ("arrive(full[1])", "arrive(full)", "one of the barrier objects"),
        (
            "                s[0] = x[0]",
            '                barrier("block")',
            "a barrier",
        ),
        ("wait(full[t % 2], t // 2 - 1)", "with role(t < 40): pass", "another role"),
        ("full = barrier", "s = barrier", "no barrier object 'full'"),
        *(
            ("wait(full[t % 2], t // 2 - 1)", f"evaluate(wait_products({n}))", told)
            for n, told in [
                ("t", "wait_products(t) does not leave a constant number of products"),
                ("-1", "does not leave a constant number"),
                ("8", "leave 0 to 7"),
            ]
        ),
        (
            "def f(x: f32[8],",
            "def f(full: f32[8], x: f32[8],",
            "has the name of something around it",
        ),
    ],
)
def test_what_is_refused(old, new, message):
    assert old in RING
    with pytest.raises(TensorlangError, match=re.escape(message)):
        verify(parse(RING.replace(old, new)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("with role(n < 3):\n    pass", "a role is outside of the threads"),
        ("evaluate(wait_products(0))", r"wait_products\(0\) is outside of a role"),
        ("evaluate(wait_copies(-1))", r"wait_copies\(-1\) does not leave a constant"),
        ("evaluate(wait_copies(n))", r"wait_copies\(n\) does not leave a constant n"),
        (
            'for t in bound(32, "thread.x"):\n    m = barrier_object(1, 1)',
            "is inside of the threads; declare it around them",
        ),
        (
            "m = barrier_object(1, 1)\narrive(m[0])",
            "'m' is used outside of the threads",
        ),
    ],
)
def test_where_roles_and_objects_stand(body, message, refused):
    refused(body, message)
