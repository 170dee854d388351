"""Broken text either parses or raises a `ParseError`: never another exception."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorlang.errors import IRError, ParseError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify

TEXT = """\
@reducer(commutative=False)
def first(a_at: i64, a: f32, b_at: i64, b: f32):
    identity(9223372036854775807, 0.0)
    return select(a_at <= b_at, a_at, b_at), select(a_at <= b_at, a, b)


def mutated(x: f32[n, 8], y: Out[f32[n]], *, n: i64, rate: f32):
    at = alloc(i64[n], scope="private", layout=lambda i: (i // 4, i % 4))
    for i in parallel(n):
        for k in bound(8, "thread.x"):
            with block("first", vi=spatial(n, i), vk=reduction(8, k), where=i * 2 < n):
                with init():
                    at[vi] = 9223372036854775807
                    y[vi] = f32("-inf")
                reduce(first, (at[vi], y[vi]), (vk, x[vi, vk]))
        h: u32x4 = splat(bitcast(u32, y[i]) >> u32(3), 4)
        if (extract(h, 0) < u32(9)) & ~(n == 2):
            atomic("add", y[i], cast(f32, lane_reduce("max", h)))
        else:
            pass
    store(y[ramp(0, 1, 8)], splat(rate, 8), mask=ramp(0, 1, 8) < splat(n, 8))
    while y[0] > 1.0:
        y[0] = contract(load(y[0], hints=("aligned",)) * rate - fma(1.5, rate, -0.5))
    evaluate(check(n > 0, 3))
"""
TOKENS = re.findall(r"\w+|\s+|[^\w\s]", TEXT)
WORDS = [*dict.fromkeys(TOKENS), "lambda", "*", "**", ":=", "await", "yield", "0x", "'"]

place = st.integers(0, len(TOKENS) - 1)
edit = st.tuples(
    place, st.sampled_from(["drop", "put", "swap"]), st.sampled_from(WORDS)
)


def located(error):
    assert re.match(r"line \d+, column \d+: .", str(error))


@settings(
    max_examples=600,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(edits=st.lists(edit, min_size=1, max_size=4))
def test_mutated_text_parses_or_is_refused(edits):
    tokens = list(TOKENS)
    for at, kind, word in edits:
        tokens[at] = {"drop": "", "put": tokens[at] + word, "swap": word}[kind]
    try:
        func = parse("".join(tokens))
    except ParseError as error:
        return located(error)
    try:
        verify(func)
    except IRError:
        return None
    assert parse(show(func)) == func
    return None


@settings(max_examples=300, derandomize=True)
@given(text=st.text() | st.text("defx(): \n=[]*+-'\"\\#@.0123456789abc", max_size=60))
def test_any_text_parses_or_is_refused(text):
    for whole in (text, f"def f(x: InOut[f32[4]], *, n: i64):\n    x[0] = {text}\n"):
        try:
            func = parse(whole)
        except ParseError as error:
            located(error)
        else:
            assert parse(show(func)) == func


def test_the_text_that_is_mutated_is_right():
    func = parse(TEXT)
    verify(func)
    assert show(func) == TEXT
