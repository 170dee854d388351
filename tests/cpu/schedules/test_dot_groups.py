"""Contractions by dot product instructions, of this processor and of others."""

from __future__ import annotations

import dataclasses
import random
import re

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.codegen.llvm.render import render
from tensorlang.codegen.lower import lower
from tensorlang.instructions import dot_product
from tensorlang.ir import parse, run
from tensorlang.runtime import build
from tensorlang.runtime.cpu import llvm
from tensorlang.schedules.contraction.dot_groups import products
from tensorlang.schedules.generic import generic
from tensorlang.schedules.stages import stages
from tensorlang.scheduling import Knobs, Schedule

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
WIDE = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni")
# a processor's triple, features, vector bits and registers, and its instruction
PROCESSORS = {
    "sapphirerapids": (X86, WIDE, 512, 32, "vpdpbusd"),
    "znver5": (X86, WIDE, 512, 32, "vpdpbusd"),
    "alderlake": (X86, ("avx2", "fma", "avx_vnni"), 256, 16, "vpdpbusd"),
    "neoverse-v1": (ARM, ("asimd", "asimddp", "i8mm"), 128, 32, "usdot"),
}


def product(m, n, k, kinds, *, flips=False):
    """y = x @ w.T of bytes; `flips` makes signed `w` unsigned first."""
    size = f", *, {m}: i64" if isinstance(m, str) else ""
    (x, w), factor = kinds, "t" if flips else "w"
    flip = f"""
    t = alloc(u8[{n}, {k}])
    for a in range({n}):
        for b in range({k}):
            with block("t", va=spatial({n}, a), vb=spatial({k}, b)):
                t[va, vb] = cast(u8, w[va, vb]) ^ u8(128)"""
    return parse(f"""
def f(x: {x}[{m}, {k}], w: {w}[{n}, {k}], y: Out[f32[{m}, {n}]]{size}):
    p = alloc(i32[{m}, {n}]){flip if flips else ""}
    for i in range({m}):
        for j in range({n}):
            for k in range({k}):
                with block(
                    "p", vi=spatial({m}, i), vj=spatial({n}, j), vk=reduction({k}, k)
                ):
                    reduce(sum, p[vi, vj],
                        cast(i32, x[vi, vk]) * cast(i32, {factor}[vj, vk]))
    for c in range({m}):
        for d in range({n}):
            with block("y", vc=spatial({m}, c), vd=spatial({n}, d)):
                y[vc, vd] = cast(f32, p[vc, vd])
""")


def scheduled(func, target, **pinned):
    s = Schedule(func, target)
    generic(s, Knobs(pinned=pinned))
    return s


def elsewhere(cpu):
    triple, features, bits, registers, _ = PROCESSORS[cpu]
    return targets.Target(
        device=cpu,
        cpu=cpu,
        arch=triple.partition("-")[0],
        features=features,
        vector_bits=bits,
        vector_registers=registers,
    )


def arrays(m, n, k, kinds, *, flips=False):
    rng = np.random.default_rng((m, n, k))
    x, w = (
        rng.integers(0, 256, shape).astype(np.uint8).view(f"{kind[0]}1")
        for kind, shape in zip(kinds, ((m, k), (n, k)), strict=True)
    )
    expected = x.astype(np.int64) @ (w.astype(np.int64) + 128 * flips).T
    return x, w, expected


CASES = [(("u8", "i8"), False), (("i8", "u8"), False), (("i8", "i8"), True)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("kinds", "flips"), CASES)
@pytest.mark.parametrize("along", ["columns", "depth"])
def test_any_size_here(seed, kinds, flips, along):
    draw = random.Random(seed)
    m, n, k = draw.randint(2, 20), draw.randint(2, 90), draw.randint(3, 200)
    pinned = {"dot_rows": draw.choice((1, 2, 4)), "dot_columns": draw.choice((1, 3, 6))}
    if along == "columns":
        pinned = {"rows": draw.randint(1, 6), "vectors": draw.randint(1, 4)}
    rows = m if along == "depth" or seed % 2 else "m"
    func = product(rows, n, k, kinds, flips=flips)
    s = scheduled(func, targets.get("llvm"), lanes_along=along, **pinned)
    assert not any("by_groups" in str(each) for each in s.declined), s.declined
    x, w, expected = arrays(m, n, k, kinds, flips=flips)
    np.testing.assert_array_equal(build(s.function, store=False)(x, w), expected)


@pytest.mark.parametrize("cpu", PROCESSORS)
@pytest.mark.parametrize(("kinds", "flips"), CASES)
def test_the_instructions_of_others_by_their_meaning(cpu, kinds, flips):
    for m, n, k in ((7, 40, 132), (2, 9, 150), (5, 33, 11)):
        target = elsewhere(cpu)
        s = scheduled(product(m, n, k, kinds, flips=flips), target)
        assert "dot(" in str(s.function) or "dpbusd" in str(s.function)
        x, w, expected = arrays(m, n, k, kinds, flips=flips)
        y = np.zeros((m, n), np.float32)
        run(s.function, x, w, y)
        np.testing.assert_array_equal(y, expected)
        kernel = build(s.function, target, store=False, by_meaning=True)
        np.testing.assert_array_equal(kernel(x, w), expected)


WINDOWS = """
def f(x: u8[7, 4, 9], w: i8[33, 7, 4], y: Out[i32[9, 33]]):
    for i in range(9):
        for j in range(33):
            for k in range(7):
                for l in range(4):
                    with block(
                        "y",
                        vi=spatial(9, i),
                        vj=spatial(33, j),
                        vk=reduction(7, k),
                        vl=reduction(4, l),
                    ):
                        reduce(sum, y[vi, vj],
                            cast(i32, x[vk, vl, vi]) * cast(i32, w[vj, vk, vl]))
"""


def test_none_of_several_reductions_is_contiguous():
    target = elsewhere("znver5")
    s = Schedule(parse(WINDOWS), target)
    (stage,) = stages(s.function)
    assert products(s, stage) is None
    generic(s, Knobs())
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (7, 4, 9)).astype(np.uint8)
    w = rng.integers(-128, 128, (33, 7, 4)).astype(np.int8)
    kernel = build(s.function, target, store=False, by_meaning=True)
    expected = np.einsum("kli,jkl->ij", x.astype("i4"), w.astype("i4"))
    np.testing.assert_array_equal(kernel(x, w), expected)


@pytest.mark.parametrize("cpu", ["znver5", "alderlake"])
def test_tiles_of_any_height_read_whole_vectors(cpu):
    """Of an open number of rows, down to those of one row that are left."""
    target = elsewhere(cpu)
    s = scheduled(product("m", 192, 256, ("u8", "i8")), target)
    text = str(lower(s.function, target))
    assert text.count("dpbusd(") + text.count("dpbusd_256(") > 2
    assert "// splat(" not in text


@pytest.mark.parametrize(("n", "k"), [(777, 1024), (768, 1025), (777, 1025)])
def test_ragged_operands_are_packed_in_squares(n, k):
    """All but the padding, and what fills no square."""
    s = scheduled(product("m", n, k, ("u8", "i8")), elsewhere("znver5"))
    assert "transpose_16" in str(s.function)
    assert not any("in_vectors" in str(each) for each in s.declined), s.declined


def by_rows(m, n, k, kinds, *, flips=False):
    """As `product`, of weights whose columns are contiguous."""
    text = str(product(m, n, k, kinds, flips=flips))
    text = text.replace(f"[{n}, {k}]", f"[{k}, {n}]").replace("t[vj, vk]", "t[vk, vj]")
    return parse(text.replace("w[vj, vk]", "w[vk, vj]"))


@pytest.mark.parametrize("cpu", [None, *PROCESSORS])
@pytest.mark.parametrize(("n", "k"), [(80, 64), (83, 64), (80, 66), (41, 37), (9, 5)])
@pytest.mark.parametrize("kinds", [("u8", "i8"), ("i8", "u8")])
def test_contiguous_columns_are_interleaved(kinds, n, k, cpu):
    """All but the padding, and what fills no vector."""
    target = elsewhere(cpu) if cpu else targets.get("llvm")
    s = scheduled(by_rows("m", n, k, kinds), target, lanes_along="columns")
    by_dots = dot_product(target.features, kinds) is not None
    assert n < 16 or ("copy_by_rows" in str(s.trace)) == by_dots, s.declined
    x, w, expected = arrays(6, n, k, kinds)
    kernel = build(s.function, target, store=False, by_meaning=cpu is not None)
    np.testing.assert_array_equal(kernel(x, np.ascontiguousarray(w.T)), expected)


@pytest.mark.parametrize("cpu", PROCESSORS)
@pytest.mark.parametrize("m", [96, 1])
def test_inner_loops_are_dot_products(cpu, m):
    """At most one other instruction per product, and what steps the loop."""
    target = elsewhere(cpu)
    s = scheduled(product(m, 192, 1024, ("u8", "i8")), target)
    text = render(lower(s.function, target), target)
    listed = llvm.compile_for(text, PROCESSORS[cpu][0], cpu, listed=True).decode()
    mnemonic = PROCESSORS[cpu][-1]
    loops = re.split(r"^\.LBB\w+:.*$", listed, flags=re.MULTILINE)
    body = max(loops, key=lambda part: part.count(mnemonic))
    body, *_ = re.split(r"^\t(?:j\w+|b\.\w+|cbn?z)\t", body, flags=re.MULTILINE)
    used = re.findall(r"^\t(?:\{vex\}\t)?([a-z]\w+)", body, re.MULTILINE)
    count = used.count(mnemonic)
    assert count >= (8 if m > 1 else 2), body
    assert len(used) <= 2 * count + 8, body


@pytest.mark.parametrize(("m", "n"), [(8, 41), (13, 70)])
def test_results_are_written_from_the_tiles_of_padded_columns(m, n):
    s = scheduled(product(m, n, 64, ("u8", "i8")), targets.get("llvm"), rows=4)
    assert not re.search(r'block\(\s*"y"', str(s.function))
    x, w, expected = arrays(m, n, 64, ("u8", "i8"))
    np.testing.assert_array_equal(build(s.function, store=False)(x, w), expected)


PAIRS = dataclasses.replace(elsewhere("znver5"), features=(*WIDE, "avx512_bf16"))


def transposed(m, n, k, *, turned=False):
    """y = x.T @ w of bf16: neither operand is contiguous along the reduction."""
    sizes = ", ".join(f"{size}: i64" for size in (m, k) if isinstance(size, str))
    factors = ["cast(f32, x[vk, vi])", "cast(f32, w[vk, vj])"]
    value = " * ".join(factors[::-1] if turned else factors)
    return parse(f"""
def f(x: bf16[{k}, {m}], w: bf16[{k}, {n}], y: Out[f32[{m}, {n}]]
        {f", *, {sizes}" if sizes else ""}):
    for i in range({m}):
        for j in range({n}):
            for k in range({k}):
                with block(
                    "y", vi=spatial({m}, i), vj=spatial({n}, j), vk=reduction({k}, k)
                ):
                    reduce(sum, y[vi, vj], {value})
""")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "k"), [(13, 10), (13, "n1"), ("n0", 10), ("n0", "n1")])
def test_both_operands_are_packed_if_their_groups_are_apart(m, k, turned):
    """As for gradients of weights: groups are of rows, whose number may be open."""
    s = scheduled(transposed(m, 48, k, turned=turned), PAIRS)
    assert not any("by_groups" in str(each) for each in s.declined), s.declined
    assert str(s.trace).count("copy_by_rows") == 2
    kernel = build(s.function, PAIRS, store=False, by_meaning=True)
    rng = np.random.default_rng(0)
    for rows, steps in ((13, 10), (1, 10), (7, 9), (13, 1), (22, 33)):
        if m not in {"n0", rows} or k not in {"n1", steps}:
            continue
        x, w = (
            rng.integers(-8, 8, (steps, size)).astype(ml_dtypes.bfloat16)
            for size in (rows, 48)
        )
        expected = x.astype(np.float64).T @ w.astype(np.float64)
        np.testing.assert_array_equal(kernel(x, w), expected)
        found = np.zeros_like(expected, np.float32)
        run(s.function, x, w, found)
        np.testing.assert_array_equal(found, expected)


def test_padding_of_an_open_reduction_adds_nothing_to_infinities():
    s = scheduled(transposed(8, 16, "n1"), PAIRS)
    kernel = build(s.function, PAIRS, store=False, by_meaning=True)
    x = np.full((3, 8), np.inf, ml_dtypes.bfloat16)
    w = np.ones((3, 16), ml_dtypes.bfloat16)
    np.testing.assert_array_equal(kernel(x, w), np.full((8, 16), np.inf))


def test_factors_of_one_array_are_not_packed_twice():
    text = str(transposed(16, 16, 8)).replace("w: bf16[8, 16], ", "")
    s = scheduled(parse(text.replace("w[vk", "x[vk")), PAIRS)
    x = np.arange(128).reshape(8, 16).astype(ml_dtypes.bfloat16)
    expected = x.astype(np.float64).T @ x.astype(np.float64)
    kernel = build(s.function, PAIRS, store=False, by_meaning=True)
    np.testing.assert_allclose(kernel(x), expected, rtol=1e-6)
