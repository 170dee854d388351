"""Divisions by sizes stand before a thread's loops, unless a condition guards them."""

from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.quotients import hoist_divisions
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify

DIVIDED = """
def f(y: Out[f32[n * 1024]], *, n: i64):
    for block in bound(n * 4, "block.x"):
        for thread in bound(256, "thread.x"):
            for c in unrolled(4):
                if block // n < 4:
                    y[(block % n * 4 + block // n) * 256 + thread] = 1.0
"""


def made(text):
    func = parse(text)
    after = hoist_divisions(func, Names(func))
    verify(after)
    return str(after)


def test_what_all_threads_divide_is_named_before_the_loops():
    text = made(DIVIDED)
    assert "quotient: i64 = block // n\n            for c in unrolled(4):" in text
    assert text.count("block // n") == 1
    assert "quotient) * 256" in text


def test_what_a_condition_guards_stays_there():
    assert "block % n * 4" in made(DIVIDED)
    guarded = DIVIDED.replace("block // n < 4", "n > 0")
    assert made(guarded) == str(parse(guarded))


def test_a_loop_without_turns_divides_nothing():
    for turns in ("0", "n"):
        never = DIVIDED.replace("unrolled(4)", f"range({turns})")
        assert made(never) == str(parse(never))


def test_a_divisor_that_the_loop_knows_stays():
    own = DIVIDED.replace("block // n", "block // (c + 1)")
    assert made(own) == str(parse(own))
