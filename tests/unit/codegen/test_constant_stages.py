"""Stages that read constant parameters alone are split off; results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.codegen.constant_stages import divided
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify

RNG = np.random.default_rng(4)
WIDE = "layout=lambda i, j: (j // 4, i, j % 4)"

PACKED = """
def packed(x: f32[n, 6], w: f32[10, 6], y: Out[f32[n, 10]], *, n: i64):
    p = alloc(f32[6, 10], {layout})
    for k in parallel(6):
        for o in range(10):
            with block("p", vk=spatial(6, k), vo=spatial(10, o)):
                p[vk, vo] = w[vo, vk] * 2.0
    for i in parallel(n):
        for o_1 in range(10):
            for k_1 in range(6):
                with block(
                    "y", vi=spatial(n, i), vo_1=spatial(10, o_1), vk_1=reduction(6, k_1)
                ):
                    reduce(sum, y[vi, vo_1], x[vi, vk_1] * p[vk_1, vo_1])
"""
INSIDE = """
def inside(x: f32[n, 6], w: f32[12, 6], y: Out[f32[n, 12]], *, n: i64):
    for s in parallel(3):
        p = alloc(f32[4, 6]{layout})
        for o in range(4):
            for k in range(6):
                with block(
                    "p", vs=spatial(12, s * 4 + o), vo=spatial(4, o), vk=spatial(6, k)
                ):
                    p[vo, vk] = w[vs, vk]
        for i in range(n):
            for o_1 in range(4):
                for k_1 in range(6):
                    with block(
                        "y",
                        vi=spatial(n, i),
                        vo_1=spatial(12, s * 4 + o_1),
                        vin=spatial(4, o_1),
                        vk_1=reduction(6, k_1),
                    ):
                        reduce(sum, y[vi, vo_1], x[vi, vk_1] * p[vin, vk_1])
"""


def both(text: str, outputs: int, constants=(1,)):
    """What a function gives, and what its two parts give."""
    function = parse(text)
    parts = divided(function, constants)
    assert parts is not None
    verify(parts.constant)
    verify(parts.rest)
    x = RNG.normal(size=(3, 6)).astype("f4")
    w = RNG.normal(size=(outputs, 6)).astype("f4")
    y, z = np.zeros((2, 3, outputs), "f4")
    run(function, x, w, y, n=3)
    kept = [
        np.zeros([int(n.value) for n in p.buffer.shape], p.buffer.dtype.numpy)
        for p in parts.constant.params
        if p.role == "out"
    ]
    given = [(x, w)[at] for at in constants]
    run(parts.constant, *given, *kept)
    run(parts.rest, x, w, z, *kept, n=3)
    return y, z, kept


@pytest.mark.parametrize("layout", ['scope="global"', WIDE])
def test_packing_is_split_off_in_the_order_of_its_layout(layout):
    y, z, (kept,) = both(PACKED.format(layout=layout), 10)
    np.testing.assert_array_equal(y, z)
    assert kept.shape == ((3, 6, 4) if layout == WIDE else (6, 10))


@pytest.mark.parametrize("layout", ["", ", layout=lambda i, j: (j, i)"])
def test_packing_within_a_loop_is_kept_for_all_its_iterations(layout):
    y, z, (kept,) = both(INSIDE.format(layout=layout), 12)
    np.testing.assert_array_equal(y, z)
    assert kept.shape == ((3, 6, 4) if layout else (3, 4, 6))


def test_nothing_is_split_off_that_depends_on_other_parameters():
    assert divided(parse(PACKED.format(layout=WIDE)), (0,)) is None
    assert divided(parse(PACKED.format(layout=WIDE)), ()) is None
    mixed = PACKED.format(layout=WIDE).replace(
        "w[vo, vk] * 2.0", "w[vo, vk] * x[0, vk]"
    )
    assert divided(parse(mixed), (1,)) is None


def test_a_temporary_that_another_stage_updates_stays():
    updated = (
        PACKED.format(layout=WIDE)
        + """
    for k_2 in range(6):
        with block("more", vk_2=spatial(6, k_2)):
            p[vk_2, 0] = x[0, vk_2]
"""
    )
    assert divided(parse(updated), (1,)) is None


def test_a_stage_of_open_sizes_stays():
    text = PACKED.format(layout=WIDE)
    open_ = text.replace("for k in parallel(6)", "for k in parallel(min(n, 6))")
    assert divided(parse(open_), (1,)) is None


def test_stages_that_follow_from_each_other_go_together():
    chain = (
        PACKED.format(layout=WIDE)
        .replace(
            "    p = alloc",
            """    q = alloc(f32[10, 6])
    for k_3 in range(6):
        for o_3 in range(10):
            with block("q", vk_3=spatial(6, k_3), vo_3=spatial(10, o_3)):
                q[vo_3, vk_3] = w[vo_3, vk_3] + 1.0
    p = alloc""",
        )
        .replace("= w[vo, vk] * 2.0", "= q[vo, vk] * 2.0")
    )
    y, z, kept = both(chain, 10)
    np.testing.assert_array_equal(y, z)
    assert len(kept) == 1


NESTED = """
def nested(x: f32[n, 6], w: f32[12, 6], y: Out[f32[n, 12]], *, n: i64):
    for s in parallel(3):
        for t in range(2):
            p = alloc(f32[4, 3]{layout})
            for o in range(4):
                for k in range(3):
                    with block(
                        "p",
                        vs=spatial(12, s * 4 + o),
                        vt=spatial(6, t * 3 + k),
                        vo=spatial(4, o),
                        vk=spatial(3, k),
                    ):
                        p[vo, vk] = w[vs, vt]
            for i in range(n):
                for o_1 in range(4):
                    for k_1 in range(3):
                        with block(
                            "y",
                            vi=spatial(n, i),
                            vo_1=spatial(12, s * 4 + o_1),
                            vin=spatial(4, o_1),
                            vt_1=reduction(2, t),
                            vk_1=reduction(3, k_1),
                        ):
                            reduce(
                                sum, y[vi, vo_1], x[vi, vt_1 * 3 + vk_1] * p[vin, vk_1]
                            )
"""


@pytest.mark.parametrize("layout", ["", ", layout=lambda i, j: (j, i)"])
def test_packing_within_several_loops_is_kept_for_all_their_iterations(layout):
    y, z, (kept,) = both(NESTED.format(layout=layout), 12)
    np.testing.assert_array_equal(y, z)
    assert kept.shape == ((3, 2, 3, 4) if layout else (3, 2, 4, 3))


def test_packing_within_a_loop_of_open_extent_stays():
    open_ = NESTED.format(layout="").replace("range(2)", "range(min(n, 2))")
    assert divided(parse(open_), (1,)) is None
