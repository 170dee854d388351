"""Contractions by matrix products: right by their meaning, and their inner loops."""

from __future__ import annotations

import random
import re

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.codegen.llvm.render import render
from tensorlang.codegen.lower import lower
from tensorlang.ir import parse
from tensorlang.ops import nn
from tensorlang.runtime import build
from tensorlang.runtime.building import MEANING_VARIABLE, forget
from tensorlang.runtime.cpu import llvm
from tensorlang.schedules.generic import generic
from tensorlang.scheduling import Knobs, Schedule

AVX = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl")
DOTS = (*AVX, "avx512_vnni", "avx512_bf16")
TARGET = targets.Target(
    device="graniterapids",
    cpu="intel-graniterapids-m173",
    features=(*DOTS, "amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
    vector_bits=512,
    vector_registers=32,
    threads=2,
    l1_bytes=48 << 10,
    l2_bytes=2 << 20,
)
KINDS = {
    ("bf16", "bf16"): "tdpbf16ps",
    ("f16", "f16"): "tdpfp16ps",
    ("i8", "i8"): "tdpbssd",
    ("i8", "u8"): "tdpbsud",
    ("u8", "i8"): "tdpbusd",
    ("u8", "u8"): "tdpbuud",
}
PRODUCTS = pytest.mark.parametrize("kinds", KINDS, ids="-".join)


def product(m, n, k, kinds, *, by_rows=True):
    """y = max(x @ w.T, 0), or of w as it is."""
    size = f", *, {m}: i64" if isinstance(m, str) else ""
    sums = "f32" if kinds[0].endswith("f16") else "i32"
    shape, at = (f"{n}, {k}", "vj, vk") if by_rows else (f"{k}, {n}", "vk, vj")
    return parse(f"""
def f(x: {kinds[0]}[{m}, {k}], w: {kinds[1]}[{shape}], y: Out[f32[{m}, {n}]]{size}):
    p = alloc({sums}[{m}, {n}])
    for i in range({m}):
        for j in range({n}):
            for k in range({k}):
                with block(
                    "p", vi=spatial({m}, i), vj=spatial({n}, j), vk=reduction({k}, k)
                ):
                    reduce(sum, p[vi, vj],
                        cast({sums}, x[vi, vk]) * cast({sums}, w[{at}]))
    for c in range({m}):
        for d in range({n}):
            with block("y", vc=spatial({m}, c), vd=spatial({n}, d)):
                y[vc, vd] = max(cast(f32, p[vc, vd]), 0.0)
""")


def scheduled(func, target=TARGET, **pinned):
    s = Schedule(func, target)
    generic(s, Knobs(pinned=pinned))
    return s


def arrays(m, n, k, kinds, *, by_rows=True):
    """Whole numbers, whose sums are exact in any order."""
    rng, made = np.random.default_rng((m, n, k)), []
    for kind, shape in zip(kinds, ((m, k), (n, k) if by_rows else (k, n)), strict=True):
        least = 0 if kind == "u8" else -9
        dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}.get(kind, f"{kind[0]}1")
        made.append(rng.integers(least, 10, shape).astype(dtype))
    x, w = (array.astype(np.int64) for array in made)
    return *made, np.maximum(x @ (w.T if by_rows else w), 0)


@PRODUCTS
@pytest.mark.parametrize("seed", range(3))
def test_any_size(seed, kinds):
    draw = random.Random(f"{seed} {kinds}")
    m, n, k = draw.randint(1, 70), draw.randint(2, 70), draw.randint(2, 300)
    by_rows, depth = draw.choice((True, False)), draw.choice((0, 128, 256))
    func = product("m" if seed == 1 else m, n, k, kinds, by_rows=by_rows)
    s = scheduled(func, products="tiles", tile_depth=depth)
    assert KINDS[kinds] in str(s.function), s.declined
    x, w, expected = arrays(m, n, k, kinds, by_rows=by_rows)
    kernel = build(s.function, TARGET, store=False, by_meaning=True)
    np.testing.assert_array_equal(kernel(x, w), expected)


@pytest.mark.parametrize("rows", [0, 1, 31, 48])
def test_open_rows(rows):
    func = product("m", 33, 64, ("bf16", "bf16"))
    s = scheduled(func, products="tiles")
    x, w, expected = arrays(rows, 33, 64, ("bf16", "bf16"))
    kernel = build(s.function, TARGET, store=False, by_meaning=True)
    np.testing.assert_array_equal(kernel(x, w), expected)


@pytest.mark.parametrize(
    ("size", "features", "tiles"),
    [
        ((1024, 1024, 1024), TARGET.features, True),
        ((96, 640, 900), TARGET.features, True),
        (("m", 640, 900), TARGET.features, True),
        ((1, 1024, 1024), TARGET.features, False),
        ((1024, 1024, 1024), DOTS, False),
    ],
)
def test_the_model_decides(size, features, tiles):
    target = targets.Target(
        cpu=TARGET.cpu,
        features=features,
        vector_bits=512,
        vector_registers=32,
        l1_bytes=TARGET.l1_bytes,
        l2_bytes=TARGET.l2_bytes,
    )
    for kinds in (("bf16", "bf16"), ("u8", "i8")):
        s = scheduled(product(*size, kinds), target)
        assert (KINDS[kinds] in str(s.function)) == tiles


@PRODUCTS
def test_inner_loops_load_each_tile_once(kinds):
    """A step of four products loads four tiles; no sums leave their registers."""
    s = scheduled(product(96, 128, 512, kinds), products="tiles", tile_depth=0)
    text = render(lower(s.function, TARGET), TARGET)
    triple = "x86_64-unknown-linux-gnu"
    listed = llvm.compile_for(text, triple, "graniterapids", listed=True).decode()
    loops = re.split(r"^\.LBB\w+:.*$", listed, flags=re.MULTILINE)
    body = max(loops, key=lambda part: part.count(KINDS[kinds]))
    body, *_ = re.split(r"^\tj\w+\t", body, flags=re.MULTILINE)
    used = re.findall(r"^\t([a-z]\w+)", body, re.MULTILINE)
    assert used.count(KINDS[kinds]) == used.count("tileloadd") == 4, body
    assert used.count("tilestored") == 0
    assert len(used) <= 18, body


@pytest.fixture
def by_meaning(monkeypatch):
    monkeypatch.setenv(MEANING_VARIABLE, "1")
    forget()
    yield
    forget()


@pytest.mark.usefixtures("by_meaning")
def test_dense_of_another_machine():
    """The layer as it is called, with what follows the products in the same pass."""
    rng = np.random.default_rng(0)
    x, w, b = (
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        for shape in ((70, 100), (50, 100), 50)
    )
    y = nn.dense(x, w, b, activation="relu", target=TARGET)
    exact = x.astype("f8") @ w.astype("f8").T + b.astype("f8")
    np.testing.assert_allclose(y.astype("f8"), np.maximum(exact, 0), 2**-8, 1e-3)
