"""Programs with roles are scheduled around what meets, and not across it."""

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import Role, Wait
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.ir.visit import walk
from tensorlang.scheduling import Schedule

RING = parse("""
def ring(x: f32[6, 32], y: Out[f32[32]]):
    for b in bound(1, "block.x"):
        s = alloc(f32[2, 32], scope="shared")
        full = barrier_object(1, 2)
        empty = barrier_object(1, 2)
        for t in bound(64, "thread.x"):
            with role(t >= 32):
                if t == 32:
                    for k in range(6):
                        wait(empty[k % 2], k // 2 - 1)
                        with arrive(full[k % 2]):
                            for i in range(32):
                                s[k % 2, i] = x[k, i]
            with role(t < 32):
                r = alloc(f32[1], scope="register")
                r[0] = 0.0
                for c in range(6):
                    wait(full[c % 2], c // 2)
                    r[0] = r[0] + s[c % 2, t]
                    if t == 0:
                        arrive(empty[c % 2])
                y[t] = r[0]
""")


def test_a_loop_of_a_role_is_cut_in_its_order(same_meaning):
    s = Schedule(RING)
    s.split("c", [None, 2])
    s.unroll("c_1")
    verify(s.function)
    assert sum(isinstance(node, Wait) for node in walk(s.function)) == 2
    same_meaning(RING, s.function)


@pytest.mark.parametrize("meeting", ["wait(m[0], -1)", "arrive(m[0])"])
def test_iterations_that_meet_others_do_not_run_at_once(meeting):
    func = parse(f"""
def f(y: Out[f32[32]]):
    for b in bound(1, "block.x"):
        m = barrier_object(1, 1)
        for t in bound(32, "thread.x"):
            for q in range(4):
                {meeting}
            y[t] = 1.0
""")
    with pytest.raises(ScheduleError, match="threads wait inside"):
        Schedule(func).vectorize("q")


def test_roles_print_and_parse_back():
    assert parse(show(RING)) == RING
    assert sum(isinstance(node, Role) for node in walk(RING)) == 2
