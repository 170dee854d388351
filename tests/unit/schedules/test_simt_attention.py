"""Attention by tiles on tensor cores: right, without races or bank conflicts."""

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.contents import allocations
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Call, Var
from tensorlang.ir.visit import walk
from tensorlang.ops import find
from tensorlang.ops.kernels.building import preferred
from tensorlang.schedules.library import schedules_for
from tensorlang.scheduling import Knobs
from tensorlang.targets import get

GPU = get("cuda:sm_80")
STEP = {"bf16": 2.0**-8, "f16": 2.0**-10}


KIND = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def drawn(shape, dtype, seed=0):
    batch, heads, groups, m, n, depth, width = shape
    rng = np.random.default_rng(seed)
    keys = batch, groups, n
    sizes = (batch, heads, m, depth), (*keys, depth), (*keys, width)
    return [rng.standard_normal(size).astype(KIND[dtype]) for size in sizes]


def prepared(arrays, dtype="bf16", knobs=(), name="nn.attention", **options):
    """The launches of attention by tiles, and the values of sizes."""
    op = find(name)
    types = tuple("bool" if a.dtype == bool else dtype for a in arrays)
    if arrays[-1].dtype == np.float32:
        types = (*types[:-1], "f32")
    shapes = [a.shape for a in arrays]
    workload = op.workload(*shapes, dtypes=types, **options)
    assert preferred(op, workload, GPU) == "tiles"
    (entry,) = schedules_for("attention", "tiles", "simt")
    func = entry.run(op.function(workload, "tiles"), GPU, Knobs(pinned=dict(knobs)))
    first = name.endswith("_grad")  # after dy
    (batch, heads, m, _), (_, groups, n, _) = shapes[first : first + 2]
    q, k = func.function.buffers[first : first + 2]
    z, sharing = batch * groups, heads // groups
    rows = (sharing, m) if q.ndim == 4 else (sharing * m,)
    given = [*zip(q.shape, (z, *rows), strict=False)]
    given += zip(k.shape, (z, n), strict=False)
    sizes = {size.name: n for size, n in given if isinstance(size, Var)}
    return lower(func.function, GPU), sizes


def outcome(arrays, dtype="bf16", knobs=(), **options):
    """The result of the launches, and the report of the run."""
    func, sizes = prepared(arrays, dtype, knobs, **options)
    q, _, v, *_ = arrays
    y = np.full((*q.shape[:3], v.shape[-1]), np.nan, KIND[dtype])
    report = run(func, *(a.reshape(-1) for a in (*arrays, y)), **sizes)
    return y.astype("f8"), report


def gradients(arrays, dtype="bf16", knobs=(), least=1e-3, **options):
    """The gradients of queries, keys and values, and the report of the run.

    `least` is the smallest size of those of queries and keys that are right.
    """
    q, _, v, *_ = arrays
    rng = np.random.default_rng(2)
    dy = rng.standard_normal((*q.shape[:3], v.shape[-1])).astype(q.dtype)
    given = [dy, *arrays]
    func, sizes = prepared(given, dtype, knobs, "nn.attention_grad", **options)
    made = [np.full(a.shape, np.nan, KIND[dtype]) for a in arrays[:3]]
    report = run(func, *(a.reshape(-1) for a in (*given, *made)), **sizes)
    wanted = formula(*arrays, dy=dy, **options)
    for got, want, size in zip(made, wanted, (least, least, 1e-3), strict=True):
        close_to_largest(got, want, dtype, size)
    return made, report


def formula(q, k, v, mask=None, *, causal=False, window=None, scale=None, dy=None):
    """Attention in f64, or its gradients; zeros where all keys are hidden."""
    q, k, v = (x.astype("f8") for x in (q, k, v))
    several = q.shape[1] // k.shape[1]
    k, v = (x.repeat(several, axis=1) for x in (k, v))
    m, n = q.shape[2], k.shape[2]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.swapaxes(-1, -2) * scale
    if mask is not None:
        is_bool = mask.dtype == bool
        scores += np.where(mask, 0, -np.inf) if is_bool else mask.astype("f8")
    at, key = np.arange(m)[:, None], np.arange(n)
    at = at + (n - m if causal == "lower_right" else 0)
    if causal:
        scores = np.where(key > at, -np.inf, scores)
    if window is not None:
        far = abs(key - at) >= window
        scores = np.where(far, -np.inf, scores)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    weights /= np.where(total == 0, 1, total)
    if dy is None:
        return weights @ v
    dy = dy.astype("f8")
    slopes = dy @ v.swapaxes(-1, -2)
    slopes = weights * (slopes - (weights * slopes).sum(-1, keepdims=True)) * scale
    per_head = slopes.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dy
    shared = len(q), q.shape[1] // several, several
    summed = (x.reshape(*shared, *x.shape[2:]).sum(axis=2) for x in per_head)
    return slopes @ k, *summed


def close_to_largest(got, want, dtype, least):
    """Sums of rounded terms, some of which cancel, are as exact as the largest."""
    assert np.isfinite(got.astype("f8")).all()
    near = 2 * STEP[dtype] * max(np.abs(want).max(initial=0), least)
    np.testing.assert_allclose(got.astype("f8"), want, rtol=0, atol=near)


def close(y, want, dtype="bf16"):
    step = 2 * STEP[dtype]
    np.testing.assert_allclose(y, want, rtol=step, atol=step)


# batch, heads, heads of keys, queries, keys, depth, width
SHAPES = {
    "grouped": (1, 4, 2, 70, 90, 64, 64),
    "one tile": (2, 1, 1, 9, 17, 32, 16),
    "wide": (1, 1, 1, 140, 70, 128, 128),
    "odd": (1, 1, 1, 70, 70, 48, 80),
    "few columns": (1, 2, 1, 65, 64, 16, 48),
    "two tiles": (1, 1, 1, 200, 150, 16, 16),
}


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("causal", [False, True, "lower_right"])
def test_results_without_bank_conflicts(case, causal):
    arrays = drawn(SHAPES[case], "bf16")
    y, report = outcome(arrays, causal=causal)
    close(y, formula(*arrays, causal=causal))
    assert report.barriers > 0
    if set(SHAPES[case][-2:]) <= {64, 128}:
        assert set(report.bank_conflicts) == {"query", "keys", "values"}
        assert sum(report.bank_conflicts.values()) == 0


@pytest.mark.parametrize("dtype", STEP)
@pytest.mark.parametrize("stages", [1, 3])
def test_types_and_stages(dtype, stages):
    arrays = drawn((1, 1, 1, 30, 200, 32, 32), dtype)
    y, _ = outcome(arrays, dtype, {"stages": stages})
    close(y, formula(*arrays), dtype)


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True, "window": 20},
        {"window": 5},
        {"causal": "lower_right", "window": 30},
        {"window": 2**63 - 1},
        {"scale": -0.5},
        {"scale": 0.0},
    ],
)
def test_windows_and_scales(options):
    arrays = drawn((1, 1, 1, 150, 170, 16, 16), "bf16")
    y, _ = outcome(arrays, **options)
    close(y, formula(*arrays, **options))


@pytest.mark.parametrize("shape", [(90,), (70, 1), (2, 1, 1, 90), (2, 2, 70, 90)])
@pytest.mark.parametrize("kind", ["hides", "adds"])
def test_masks(shape, kind):
    arrays = drawn((2, 2, 1, 70, 90, 16, 16), "bf16")
    rng = np.random.default_rng(1)
    mask = rng.random(shape) < 0.5
    if kind == "adds":
        hidden = rng.standard_normal(shape)
        mask = np.where(mask, -np.inf, hidden).astype(KIND["bf16"])
    options = {"causal": len(shape) == 4, "scale": 0.7}
    y, _ = outcome([*arrays, mask], **options)
    close(y, formula(*arrays, mask, **options))


def test_queries_that_see_no_keys_give_zeros():
    arrays = drawn((1, 1, 1, 80, 10, 16, 16), "bf16")
    y, _ = outcome(arrays, causal="lower_right")
    assert (y[:, :, :70] == 0).all()
    close(y, formula(*arrays, causal="lower_right"))


def test_large_scores_do_not_overflow():
    q, k, v = drawn((1, 1, 1, 9, 100, 16, 16), "bf16")
    arrays = [q * KIND["bf16"](64), k * KIND["bf16"](64), v]
    y, _ = outcome(arrays)
    close(y, formula(*arrays))


@pytest.mark.parametrize(("dtype", "factor"), [("f16", 15000), ("bf16", 3e5)])
def test_finite_inputs_of_any_size_give_finite_results(dtype, factor):
    q, k, v = drawn((1, 1, 1, 9, 100, 16, 16), dtype)
    large = [(x.astype("f4") * factor).astype(x.dtype) for x in (q, k)]
    y, _ = outcome([*large, v], dtype)
    close(y, formula(*large, v), dtype)


@pytest.mark.parametrize("scale", [3e38, 1e-46])
def test_scales_at_the_ends_of_the_range(scale):
    q, k, v = drawn((1, 1, 1, 9, 100, 16, 16), "bf16")
    small = [q * KIND["bf16"](1e-19), k * KIND["bf16"](1e-19), v]
    y, _ = outcome(small, scale=scale)
    close(y, formula(*small, scale=scale))


@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_masks_of_the_lowest_number(kind):
    """A row of equal scores has the mean of the values, as a softmax of it has."""
    dtype = KIND.get(kind, np.float32)
    arrays = drawn((1, 1, 1, 5, 70, 16, 16), "bf16")
    mask = np.zeros((5, 70), dtype)
    mask[1] = mask[2, 30:] = ml_dtypes.finfo(dtype).min
    y, _ = outcome([*arrays, mask])
    close(y, formula(*arrays, mask))
    close(y[0, 0, 1], arrays[2].astype("f8").mean((0, 1, 2)))


def test_only_what_copies_run_ahead_of_is_doubled():
    """Queries, and two stages of keys and values, have room; all twice have not."""
    func, _ = prepared(drawn((1, 1, 1, 128, 128, 256, 64), "bf16"))
    shared = [b for b in allocations(func) if b.scope == "shared"]
    sizes = {b.name: int(b.shape[0].value) for b in shared}
    assert sizes == {"query": 128 * 256, "keys": 2 * 64 * 256, "values": 2 * 64 * 64}


def test_neither_scores_nor_weights_are_in_memory():
    arrays = drawn((1, 2, 1, 70, 90, 64, 64), "bf16")
    func, _ = prepared(arrays)
    scopes = {b.name: b.scope for b in allocations(func)}
    shared = {name for name, scope in scopes.items() if scope == "shared"}
    assert shared == {"query", "keys", "values"}
    assert "global" not in scopes.values()


def test_products_and_fragments_of_a_tile_of_keys():
    """16 x 64 scores of a warp: 4 steps of 4 x 2 products, and as many results."""
    func, _ = prepared(drawn((1, 1, 1, 64, 64, 64, 64), "bf16"))
    written = Counter(n.name for n in walk(func) if isinstance(n, Call))
    assert written["mma_m16n8k16_bf16"] == 4  # in unrolled loops, two for each product
    assert written["ldmatrix_x4"] == 2  # queries and keys, none of weights
    assert written["ldmatrix_x4_trans"] == 1
    assert written["shuffle_xor"] == 4  # two for maxima, and two for sums


@pytest.mark.parametrize(
    ("case", "causal"),
    [
        *((case, True) for case in SHAPES),
        *(("grouped", causal) for causal in (False, "lower_right")),
    ],
)
def test_gradients_without_bank_conflicts(case, causal):
    _, report = gradients(drawn(SHAPES[case], "bf16"), causal=causal)
    if set(SHAPES[case][-2:]) <= {64, 128}:
        assert sum(report.bank_conflicts.values()) == 0


@pytest.mark.parametrize("dtype", STEP)
@pytest.mark.parametrize("stages", [1, 3])
def test_gradients_of_types_and_stages(dtype, stages):
    knobs = {"stages_1": stages, "stages_2": stages}
    gradients(drawn((1, 2, 1, 30, 150, 32, 32), dtype), dtype, knobs, causal=True)


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True, "window": 20},
        {"window": 5},
        {"causal": "lower_right", "window": 30},
        {"window": 2**63 - 1},
        {"scale": -0.5},
        {"scale": 0.0},
    ],
)
def test_gradients_of_windows_and_scales(options):
    gradients(drawn((1, 2, 1, 150, 170, 16, 16), "bf16"), **options)


@pytest.mark.parametrize("shape", [(90,), (70, 1), (2, 1, 1, 90), (2, 2, 70, 90)])
def test_gradients_of_masks(shape):
    arrays = drawn((2, 2, 1, 70, 90, 16, 16), "bf16")
    mask = np.random.default_rng(1).random(shape) < 0.5
    gradients([*arrays, mask], causal=len(shape) == 4, scale=0.7)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1), (2, 2, 1, 1, 5), (1, 1, 1, 65, 1)])
def test_gradients_of_one_row(shape):
    gradients(drawn((*shape, 16, 16), "bf16"))


def test_gradients_of_hidden_rows_are_zeros():
    arrays = drawn((1, 1, 1, 80, 10, 16, 16), "bf16")
    (dq, _, _), _ = gradients(arrays, causal="lower_right")
    assert (dq[:, :, :70] == 0).all()
    nothing = np.zeros((80, 10), bool)
    for made in gradients([*arrays, nothing])[0]:
        assert (made == 0).all()


@pytest.mark.parametrize("shape", [(0, 2, 1, 5, 7), (1, 2, 1, 0, 7)])
def test_gradients_without_queries_are_zeros(shape):
    for made in gradients(drawn((*shape, 16, 16), "bf16"))[0]:
        assert (made == 0).all()


@pytest.mark.parametrize(("dtype", "factor"), [("f16", 15000), ("bf16", 3e5)])
def test_gradients_of_large_scores(dtype, factor):
    """One key has all the weight: what is left of others is a rounding error of f32."""
    q, k, v = drawn((1, 1, 1, 9, 100, 16, 16), dtype)
    large = [(x.astype("f4") * factor).astype(x.dtype) for x in (q, k)]
    gradients([*large, v], dtype, least=2.0**-10 * factor)


def test_gradients_keep_no_scores_in_memory():
    func, _ = prepared(
        drawn((1, 2, 1, 70, 90, 64, 64), "bf16")[:1]
        + drawn((1, 2, 1, 70, 90, 64, 64), "bf16"),
        name="nn.attention_grad",
    )
    held = [b for b in allocations(func) if b.scope in ("shared", "global")]
    found = {b.name: b.scope for b in held}
    assert found.pop("numbers") == "global"  # four a query
    copies = {"query", "keys", "values", "numbers_dk"}
    copies |= {
        f"{x}_{n}_{of}"
        for x in ("row", "column")
        for n in (0, 1)
        for of in ("dq", "dk")
    }
    assert found == dict.fromkeys(copies, "shared")
