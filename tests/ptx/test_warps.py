"""Threads that part and meet: branches, barriers, shuffles, votes, tiles of a warp."""

import ml_dtypes
import numpy as np
import pytest

PLACE = "mad.wide.u32 %b1, %t, 4, %a0;\n"
RNG = np.random.default_rng(13)


def test_loops_of_different_lengths(run):
    made = np.zeros(64, np.uint32)
    body = f"""{PLACE} mov.u32 %w1, 0; mov.u32 %w2, 0;
        again: setp.ge.u32 %p1, %w1, %t; @%p1 bra done;
        add.u32 %w2, %w2, %w1; add.u32 %w1, %w1, 1; bra.uni again;
        done: st.global.u32 [%b1], %w2;"""
    run(body, made, threads=64)
    assert made.tolist() == [t * (t - 1) // 2 for t in range(64)]


def test_each_thread_knows_its_place(run):
    made = np.zeros(96, np.uint32)
    body = """mov.u32 %w1, %ctaid.x; mov.u32 %w2, %ntid.x;
        mad.lo.u32 %w3, %w1, %w2, %t; mad.wide.u32 %b1, %w3, 4, %a0;
        mov.u32 %w4, %laneid; mov.u32 %w5, %nctaid.x;
        mad.lo.u32 %w6, %w1, 100, %w4; mad.lo.u32 %w6, %w5, 1000, %w6;
        st.global.u32 [%b1], %w6;"""
    run(body, made, threads=48, blocks=2)
    assert made.tolist() == [
        2000 + 100 * b + t % 32 for b in range(2) for t in range(48)
    ]


SHUFFLES = {
    ("bfly", 5, 31): lambda lane: lane ^ 5,
    ("down", 3, 31): lambda lane: lane + 3 if lane + 3 < 32 else lane,
    ("up", 3, 0): lambda lane: lane - 3 if lane >= 3 else lane,
    ("idx", 7, 31): lambda _: 7,
    ("down", 1, 0x181F): lambda lane: lane + 1 if lane % 8 < 7 else lane,
    ("idx", 2, 0x1C1F): lambda lane: lane // 4 * 4 + 2,
}


@pytest.mark.parametrize(("mode", "by", "bound"), SHUFFLES)
def test_shuffles(run, mode, by, bound):
    made = np.zeros(64, np.uint32)
    body = f"""{PLACE} mov.u32 %w1, %t; mov.u32 %w4, -1;
        shfl.sync.{mode}.b32 %w2|%p1, %w1, {by}, {bound}, %w4;
        st.global.u32 [%b1], %w2;"""
    run(body, made, threads=64)
    source = SHUFFLES[mode, by, bound]
    assert made.tolist() == [32 * (t // 32) + source(t % 32) for t in range(64)]


def test_votes(run):
    made = np.zeros(64, np.uint32)
    body = f"""{PLACE} and.b32 %w1, %t, 1; setp.eq.u32 %p1, %w1, 1;
        setp.lt.u32 %p4, %t, 32;
        vote.sync.ballot.b32 %w2, %p1, 0xffffffff;
        vote.sync.all.pred %p2, %p4, 0xffffffff;
        vote.sync.any.pred %p3, %p4, -1;
        selp.u32 %w3, 1, 0, %p2; selp.u32 %w4, 2, 0, %p3;
        xor.b32 %w2, %w2, 0xaaaaaaaa; add.u32 %w2, %w2, %w3; add.u32 %w2, %w2, %w4;
        st.global.u32 [%b1], %w2;"""
    run(body, made, threads=64)
    assert made.tolist() == [3] * 32 + [0] * 32


SHARED = ".shared .align 16 .b8 space[1024];\nmov.u32 %w20, space;\n"
MINE = "mad.lo.u32 %w21, %t, 4, %w20;\n"


def test_shared_memory_is_of_the_block(run):
    made = np.zeros(128, np.uint32)
    body = f"""{SHARED}{MINE} mov.u32 %w1, %ctaid.x; mad.lo.u32 %w2, %w1, 64, %t;
        mad.wide.u32 %b1, %w2, 4, %a0; st.shared.u32 [%w21], %w2; bar.sync 0;
        sub.u32 %w3, 63, %t; mad.lo.u32 %w4, %w3, 4, %w20;
        ld.shared.u32 %w5, [%w4]; st.global.u32 [%b1], %w5;"""
    run(body, made, threads=64, blocks=2)
    assert made.reshape(2, 64)[:, ::-1].ravel().tolist() == list(range(128))


def test_dynamic_and_generic_shared_memory(run):
    made = np.zeros(32, np.uint32)
    body = f"""{PLACE} .extern .shared .align 16 .b8 space[]; mov.u64 %b2, space;
        cvta.shared.u64 %b3, %b2; mad.wide.u32 %b4, %t, 4, %b3;
        st.u32 [%b4], %t; ld.u32 %w1, [%b4]; st.global.u32 [%b1], %w1;"""
    run(body, made, threads=32, shared=128)
    assert made.tolist() == list(range(32))


def tiles_of(kind, rows, columns):
    values = RNG.integers(-8, 9, (rows, columns))
    return values.astype({"f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_ldmatrix_and_mma_give_a_product(run, kind):
    """A row-major and B column-major, as the ISA has its example."""
    a, b = tiles_of(kind, 16, 16), tiles_of(kind, 8, 16)
    made = np.zeros((16, 8), np.float32)
    body = f""".shared .align 16 .b8 space[768]; mov.u32 %w20, space;
        mad.wide.u32 %b1, %t, 16, %a0; ld.global.v4.u32 {{%w1, %w2, %w3, %w4}}, [%b1];
        mad.lo.u32 %w21, %t, 16, %w20;
        st.shared.v4.u32 [%w21], {{%w1, %w2, %w3, %w4}};
        mad.wide.u32 %b1, %t, 8, %a1; ld.global.v2.u32 {{%w1, %w2}}, [%b1];
        mad.lo.u32 %w21, %t, 8, %w20; st.shared.v2.u32 [%w21+512], {{%w1, %w2}};
        bar.sync 0;
        and.b32 %w5, %t, 15; shr.u32 %w6, %t, 4;
        mad.lo.u32 %w7, %w5, 32, %w20; mad.lo.u32 %w7, %w6, 16, %w7;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%w1, %w2, %w3, %w4}}, [%w7];
        and.b32 %w5, %t, 7; and.b32 %w6, %t, 8;
        mad.lo.u32 %w7, %w5, 32, %w20; mad.lo.u32 %w7, %w6, 2, %w7;
        ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%w8, %w9}}, [%w7+512];
        mov.f32 %f1, 0f3F800000;
        mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32
            {{%f2, %f3, %f4, %f5}}, {{%w1, %w2, %w3, %w4}}, {{%w8, %w9}},
            {{%f1, %f1, %f1, %f1}};
        mad.wide.u32 %b1, %t, 8, %a2; st.global.v2.f32 [%b1], {{%f2, %f3}};
        st.global.v2.f32 [%b1+256], {{%f4, %f5}};"""
    run(body, a.view(np.uint16), b.view(np.uint16), made, threads=32)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T + 1
    np.testing.assert_array_equal(made, wanted)


def test_a_transposed_matrix(run):
    a, made = np.arange(64, dtype=np.uint16), np.zeros(64, np.uint16)
    body = f"""{SHARED} mad.wide.u32 %b1, %t, 4, %a0; ld.global.u32 %w1, [%b1];
        mad.lo.u32 %w21, %t, 4, %w20; st.shared.u32 [%w21], %w1; bar.sync 0;
        and.b32 %w5, %t, 7; mad.lo.u32 %w7, %w5, 16, %w20;
        ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {{%w1}}, [%w7];
        mad.wide.u32 %b1, %t, 4, %a1; st.global.u32 [%b1], %w1;"""
    run(body, a, made, threads=32)
    np.testing.assert_array_equal(made.reshape(8, 8), a.reshape(8, 8).T)


def test_tf32_products(run):
    a = RNG.integers(-8, 9, (16, 8)).astype(np.float32)
    b = RNG.integers(-8, 9, (8, 8)).astype(np.float32)
    made = np.zeros((16, 8), np.float32)
    body = """shr.u32 %w1, %t, 2; and.b32 %w2, %t, 3;
        mad.lo.u32 %w3, %w1, 8, %w2; mad.wide.u32 %b1, %w3, 4, %a0;
        ld.global.u32 %w4, [%b1]; ld.global.u32 %w5, [%b1+256];
        ld.global.u32 %w6, [%b1+16]; ld.global.u32 %w7, [%b1+272];
        mad.lo.u32 %w3, %w2, 8, %w1; mad.wide.u32 %b1, %w3, 4, %a1;
        ld.global.u32 %w8, [%b1]; ld.global.u32 %w9, [%b1+128];
        mov.f32 %f1, 0f00000000;
        mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
            {%f2, %f3, %f4, %f5}, {%w4, %w5, %w6, %w7}, {%w8, %w9},
            {%f1, %f1, %f1, %f1};
        mad.wide.u32 %b1, %t, 8, %a2; st.global.v2.f32 [%b1], {%f2, %f3};
        st.global.v2.f32 [%b1+256], {%f4, %f5};"""
    run(body, a, b, made, threads=32)
    np.testing.assert_array_equal(made, a @ b)


@pytest.mark.parametrize(
    ("op", "kind", "wanted"),
    [
        ("add", "u32", 4 + sum(range(32))),
        ("add", "f32", 4 + sum(range(32))),
        ("min", "s32", 0),
        ("max", "u32", 31),
        ("or", "b32", 31),
        ("xor", "b32", 4),
        ("exch", "b32", 31),
    ],
)
def test_atomics(run, op, kind, wanted):
    cell = np.array([4], np.float32 if kind == "f32" else np.uint32)
    turn = "cvt.rn.f32.u32 %f1, %t;" if kind == "f32" else "mov.u32 %w1, %t;"
    register = "%f1" if kind == "f32" else "%w1"
    result = "%f2" if kind == "f32" else "%w2"
    run(f"{turn} atom.global.{op}.{kind} {result}, [%a0], {register};", cell)
    assert cell[0] == wanted
    if op != "exch":
        cell[0] = 4
        run(f"{turn} red.global.{op}.{kind} [%a0], {register};", cell)
        assert cell[0] == wanted


def test_compare_and_swap_lets_one_win(run):
    cell, made = np.array([7], np.uint32), np.zeros(32, np.uint32)
    body = """mad.wide.u32 %b1, %t, 4, %a1; add.u32 %w1, %t, 100;
        atom.global.cas.b32 %w2, [%a0], 7, %w1; st.global.u32 [%b1], %w2;"""
    run(body, cell, made)
    assert (made == 7).sum() == 1
    assert cell[0] == 100 + int(np.flatnonzero(made == 7)[0])
