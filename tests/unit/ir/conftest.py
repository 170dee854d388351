"""How the verifier's tests refuse and accept: by text, or by a tree."""

from __future__ import annotations

import pytest

from tensorlang.errors import IRError
from tensorlang.ir.dtypes import f32
from tensorlang.ir.nodes import Buffer, Function, Param, Var
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify

HEAD = "def f(x: f32[8], y: Out[f32[8]], z: InOut[f32[8]], *, n: i64, c: f32):\n"


def _parse(body, head):
    return parse(head + "".join(f"    {line}\n" for line in body.splitlines()))


@pytest.fixture
def accepted():
    """The function of these lines parses and verifies."""

    def check(body, head=HEAD):
        verify(_parse(body, head))

    return check


@pytest.fixture
def refused():
    """The function of these lines parses, and the verifier refuses it."""

    def check(body, message, head=HEAD):
        func = _parse(body, head)
        with pytest.raises(IRError, match=message):
            verify(func)

    return check


@pytest.fixture
def tree_refused():
    """A body that text need not be able to spell, of x (in), y (out) and n."""
    x, y = Buffer("x", f32, (8,)), Buffer("y", f32, (8,))
    params = (Param(x, "in"), Param(y, "out"))

    def check(body, message):
        with pytest.raises(IRError, match=message):
            verify(Function("f", params, (Var("n"),), body))

    return check
