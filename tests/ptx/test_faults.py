"""What PTX leaves undefined is found, and told with its line and its thread."""

import numpy as np
import pytest

PLACE = "mad.wide.u32 %b1, %t, 4, %a0;\n"
SHARED = ".shared .align 16 .b8 space[256];\nmov.u32 %w20, space;\n"
MINE = "mad.lo.u32 %w21, %t, 4, %w20;\n"
COPY = "cp.async.ca.shared.global [%w21], [%b1], 4;\n"
READ = "ld.shared.u32 %w1, [%w21]; st.global.u32 [%b1], %w1;\n"

FAULTS = {
    "outside": (
        f"{PLACE} ld.global.u32 %w1, [%b1+4];",
        r"f, line \d+, block \[0, 0, 0\], thread \[31, 0, 0\]: 4 bytes .* outside",
    ),
    "before": (f"{PLACE} st.global.u32 [%b1+-4], %t;", r"thread \[0, 0, 0\]: 4 bytes"),
    "misaligned": (f"{PLACE} ld.global.u32 %w1, [%b1+2];", "no multiple of 4"),
    "misaligned vector": (
        f"{PLACE} ld.global.v2.u32 {{%w1, %w2}}, [%b1];",
        r"thread \[1, 0, 0\]: .* no multiple of 8",
    ),
    "outside of a variable": (
        f"{SHARED}{MINE} st.shared.u32 [%w21+160], %t;",
        r"thread \[24, 0, 0\]: 4 bytes at .* in no variable",
    ),
    "a barrier that some do not reach": (
        "setp.lt.u32 %p1, %t, 5; @%p1 bra out; bar.sync 0; out:",
        "a barrier while threads of the block are gone",
    ),
    "two barriers": (
        """setp.lt.u32 %p1, %t, 5; @%p1 bra other; bar.sync 0; bra.uni out;
        other: bar.sync 0; out:""",
        "wait at several barriers",
    ),
    "a shuffle without some": (
        """setp.lt.u32 %p1, %t, 5; @%p1 bra out;
        shfl.sync.bfly.b32 %w1, %t, 1, 31, -1; bar.sync 0; out: bar.sync 0;""",
        "wait for others that do not come",
    ),
    "a shuffle from the gone": (
        """setp.lt.u32 %p1, %t, 5; @%p1 ret;
        shfl.sync.bfly.b32 %w1, %t, 1, 31, -1;""",
        "reads a lane that takes no part",
    ),
    "a matrix for half a warp": (
        f"""{SHARED} setp.lt.u32 %p1, %t, 5; @%p1 ret;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%w1}}, [%w20];""",
        "lanes of the warp are gone",
    ),
    "not of its own mask": (
        "shfl.sync.bfly.b32 %w1, %t, 1, 31, 0xff;",
        r"thread \[8, 0, 0\]: .* its own member mask",
    ),
    "no barrier": (
        f"""{SHARED}{MINE}{PLACE} st.shared.u32 [%w21], %t; xor.b32 %w2, %t, 1;
        mad.lo.u32 %w3, %w2, 4, %w20; ld.shared.u32 %w1, [%w3];""",
        "reads what another thread wrote since the last barrier",
    ),
    "no barrier before a write": (
        f"""{SHARED}{MINE}{PLACE} xor.b32 %w2, %t, 1;
        mad.lo.u32 %w3, %w2, 4, %w20; ld.shared.u32 %w1, [%w3];
        st.shared.u32 [%w21], %t;""",
        "writes what another thread read since the last barrier",
    ),
    "no wait": (
        f"{SHARED}{MINE}{PLACE}{COPY} cp.async.commit_group; {READ}",
        "asynchronous copy writes that it has not waited for",
    ),
    "a wait for another group": (
        f"""{SHARED}{MINE}{PLACE}{COPY} cp.async.commit_group;
        cp.async.wait_group 1; {READ}""",
        "asynchronous copy writes that it has not waited for",
    ),
    "no group": (
        f"{SHARED}{MINE}{PLACE}{COPY} cp.async.wait_group 0; {READ}",
        "asynchronous copy writes that it has not waited for",
    ),
    "a wait without a barrier": (
        f"""{SHARED}{MINE}{PLACE}{COPY} cp.async.wait_all; xor.b32 %w2, %t, 1;
        mad.lo.u32 %w3, %w2, 4, %w20; ld.shared.u32 %w1, [%w3];""",
        "reads what another thread wrote since the last barrier",
    ),
    "a constant that changes": (
        f"{PLACE} st.global.u32 [%b1], %t; ld.global.nc.u32 %w1, [%b1];",
        "which the kernel writes",
    ),
    "no instruction": ("frobnicate.u32 %w1, %w2;", "'frobnicate.u32 .* is not known"),
    "no modifier": ("add.sat.s32 %w1, %w2, %w3;", "is not known"),
    "a narrow register": ("add.u64 %w1, %b1, %b2;", "is not known|does not fit"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(run, machine, name):
    body, said = FAULTS[name]
    with pytest.raises(machine.Fault, match=said):
        run(body, np.zeros(32, np.uint32), threads=32)


def test_a_copy_that_is_waited_for(run):
    given, made = np.arange(32, dtype=np.uint32) + 9, np.zeros(32, np.uint32)
    body = f"""{SHARED}{MINE}{PLACE}{COPY} cp.async.commit_group;
        cp.async.commit_group; cp.async.wait_group 1; bar.sync 0;
        sub.u32 %w2, 31, %t; mad.lo.u32 %w3, %w2, 4, %w20;
        ld.shared.u32 %w1, [%w3]; mad.wide.u32 %b2, %t, 4, %a1;
        st.global.u32 [%b2], %w1;"""
    run(body, given, made)
    np.testing.assert_array_equal(made, given[::-1])


def test_the_rest_of_a_copy_is_zero(run):
    given, made = np.full(128, 0x01010101, np.uint32), np.full(128, 5, np.uint32)
    body = """.shared .align 16 .b8 space[512]; mov.u32 %w20, space;
        mad.lo.u32 %w21, %t, 16, %w20; mad.wide.u32 %b1, %t, 16, %a0;
        rem.u32 %w1, %t, 17;
        cp.async.cg.shared.global [%w21], [%b1], 16, %w1; cp.async.wait_all;
        ld.shared.v4.u32 {%w2, %w3, %w4, %w5}, [%w21];
        mad.wide.u32 %b2, %t, 16, %a1;
        st.global.v4.u32 [%b2], {%w2, %w3, %w4, %w5};"""
    run(body, given, made)
    bytes_ = made.view(np.uint8).reshape(32, 16)
    assert bytes_.sum(1).tolist() == [t % 17 for t in range(32)]
    assert all((row[: row.sum()] == 1).all() for row in bytes_)


def test_a_loop_without_an_end_is_told(run, machine, monkeypatch):
    module = __import__(machine.__name__ + ".machine", fromlist=["_STEPS"])
    monkeypatch.setattr(module, "_STEPS", 100)
    with pytest.raises(machine.Fault, match="does not end"):
        run("again: bra.uni again;", np.zeros(32, np.uint32))
