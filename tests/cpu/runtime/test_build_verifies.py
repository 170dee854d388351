"""Nothing is built that the verifier refuses."""

from __future__ import annotations

import pytest

from tensorlang.errors import IRError
from tensorlang.ir import parse
from tensorlang.runtime import build

REFUSED = {
    "two parameters of one name": "def f(x: f32[4], x: f32[4]):\n    pass\n",
    "a negative size": "def f(y: Out[f32[-4]]):\n    pass\n",
    "an enormous size": f"def f(y: Out[f32[{2**62}, {2**62}]]):\n    pass\n",
    "a negative temporary": "def f(y: Out[f32[4]]):\n    t = alloc(f32[-1])\n",
    "no such barrier": "def f(y: Out[f32[4]]):\n    barrier('nope')\n",
    "outside of its array": "def f(y: Out[f32[4]]):\n    y[4] = 0.0\n",
    "a division by zero": (
        "def f(y: Out[i64[4]]):\\n    for i in range(4):\\n        y[i] = i // 0\\n"
    ),
    "a shift that is too long": (
        "def f(y: Out[i64[4]]):\\n    for i in range(4):\\n        y[i] = i << 64\\n"
    ),
    "an input that is written": "def f(x: f32[4]):\n    x[0] = 0.0\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_well_formed_is_not_built(text: str) -> None:
    with pytest.raises(IRError):
        build(parse(text))
