"""Attention against its formula in float64, and against PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import nn

torch = pytest.importorskip("torch")

EPSILON = {np.float64: 1e-13, np.float32: 3e-6}
EPSILON |= {np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}
MASKS = [(False, None), (True, None), ("lower_right", None), (True, 5), (False, 3)]
MASKS += [(False, 2**63 - 1)]
# batch, heads, heads of keys, queries, keys
LENGTHS = [(1, 4, 2, 70, 90), (2, 3, 1, 130, 77), (1, 2, 2, 65, 200), (3, 2, 2, 9, 9)]


def drawn(shape, dtype=np.float32, seed=0):
    batch, heads, groups, m, n, depth, width = shape
    rng = np.random.default_rng(seed)
    keys = batch, groups, n
    sizes = (batch, heads, m, depth), (*keys, depth), (*keys, width)
    return [rng.standard_normal(size).astype(dtype) for size in sizes]


def hidden(m, n, causal, window):
    """Which keys are hidden from which queries."""
    at = np.arange(m)[:, None] + (n - m if causal == "lower_right" else 0)
    key, far = np.arange(n)[None], np.inf if window is None else window
    after = key > at if causal else key - at >= far
    return after | (at - key >= far)


def in_float64(q, k, v, *, causal=False, scale=None, window=None, mask=None):
    """The definition, on tensors; zeros where all keys are hidden."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    gone = torch.as_tensor(hidden(q.shape[2], k.shape[2], causal, window))
    scores = q @ k.transpose(-1, -2) * scale
    if mask is not None:
        mask = torch.as_tensor(mask)
        added = torch.zeros(1).masked_fill(~mask, -np.inf) if is_bool(mask) else mask
        scores, gone = scores + added, gone | (added == -np.inf)
    none = gone.all(-1, keepdim=True)
    scores = scores.masked_fill(gone, -np.inf).masked_fill(none, 0)
    return torch.softmax(scores, -1).masked_fill(none, 0) @ v


def is_bool(mask):
    return mask.dtype == torch.bool


def tensors(arrays, *, grad=False):
    """The arrays in float64."""
    return [torch.tensor(x.astype(np.float64), requires_grad=grad) for x in arrays]


def formula(*arrays, **options):
    return in_float64(*tensors(arrays), **options).numpy()


def check_gradient(shape, dtype=np.float32, **options):
    arrays = drawn(shape, dtype)
    wide = tensors(arrays, grad=True)
    y = in_float64(*wide, **options)
    dy = np.random.default_rng(1).standard_normal(y.shape).astype(dtype)
    y.backward(*tensors([dy]))
    tolerance = EPSILON[dtype]
    for got, given in zip(nn.attention_grad(dy, *arrays, **options), wide, strict=True):
        right = given.grad.numpy()
        size = np.abs(right).max(initial=1)
        assert got.dtype == dtype
        np.testing.assert_allclose(
            got.astype(np.float64), right, rtol=tolerance, atol=tolerance * size
        )


def check(shape, dtype=np.float32, **options):
    arrays = drawn(shape, dtype)
    y = nn.attention(*arrays, **options)
    assert y.dtype == dtype
    tolerance = EPSILON[dtype]
    np.testing.assert_allclose(
        y.astype(np.float64),
        formula(*arrays, **options),
        rtol=tolerance,
        atol=tolerance,
    )


@pytest.mark.parametrize(("causal", "window"), MASKS)
def test_lengths(causal, window):
    for lengths in LENGTHS:
        check((*lengths, 24, 20), causal=causal, window=window)


@pytest.mark.parametrize(("causal", "window"), MASKS)
@pytest.mark.parametrize("m", [1, 5])
def test_few_queries(m, causal, window):
    for n in (1, 64, 200):
        check((2, 4, 2, m, n, 24, 20), causal=causal, window=window)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_query_with_keys_of_its_own(dtype):
    for n in (1, 64, 200, 201):
        check((2, 4, 4, 1, n, 24, 20), dtype, causal="lower_right")
        mask = np.random.default_rng(n).random((2, 1, 1, n)) < 0.5
        mask[0, ..., 0] = True
        check((2, 4, 4, 1, n, 24, 20), dtype, mask=mask)


@pytest.mark.parametrize(
    ("heads", "m", "options", "way"),
    [
        (4, 1, {}, "direct"),
        (4, 1, {"causal": "lower_right"}, "direct"),
        (4, 1, {"causal": True}, "online"),  # sees one key alone
        (4, 1, {"window": 3}, "online"),
        (8, 1, {}, "online"),
        (4, 2, {}, "online"),
    ],
)
def test_keys_that_serve_several_queries_are_read_in_blocks(heads, m, options, way):
    keys = (2, 4, 50, 24)
    workload = nn.attention.workload((2, heads, m, 24), keys, keys, **options)
    assert nn.attention.prefers(workload) == way


@pytest.mark.parametrize(
    ("depth", "width"), [(1, 1), (17, 130), (256, 256), (64, 48), (40, 40)]
)
def test_depths(depth, width):
    check((1, 2, 1, 40, 67, depth, width), causal=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_types(dtype, causal):
    check((2, 4, 2, 70, 90, 24, 20), dtype, causal=causal)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_types(dtype, causal):
    check_gradient((2, 4, 2, 70, 90, 24, 20), dtype, causal=causal)


@pytest.mark.parametrize(("causal", "window"), MASKS)
def test_gradients_of_lengths(causal, window):
    for lengths in LENGTHS:
        check_gradient((*lengths, 24, 20), causal=causal, window=window)


@pytest.mark.parametrize("causal", [False, True])
def test_as_in_pytorch(causal):
    q, k, v = drawn((2, 4, 2, 60, 45, 24, 20))
    y = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.from_numpy, (q, k, v)), is_causal=causal, enable_gqa=True, scale=0.3
    )
    got = nn.attention(q, k, v, causal=causal, scale=0.3)
    np.testing.assert_allclose(got, y.numpy(), rtol=3e-6, atol=3e-6)


SHAPES = [(2, 4, 70, 90), (70, 90), (2, 1, 1, 90), (1, 4, 70, 1), (4, 1, 90)]
SHAPES += [(2, 4, 1, 90), (2, 1, 70, 90), (90,), (1,), ()]


def masked(shape, kind):
    rng = np.random.default_rng(2)
    return rng.random(shape) < 0.7 if kind is bool else rng.normal(size=shape)


@pytest.mark.parametrize("groups", [1, 4])
def test_masks(groups):
    for shape in SHAPES:
        check((2, 4, groups, 70, 90, 24, 20), mask=masked(shape, bool))


@pytest.mark.parametrize("options", [{"causal": True}, {"window": 9}])
def test_masks_that_are_added_to_others(options):
    for shape in SHAPES[:3]:
        mask = masked(shape, float).astype(np.float32)
        check((2, 4, 2, 70, 90, 24, 20), mask=mask, **options)


@pytest.mark.parametrize("shape", [(2, 4, 1, 90), (3, 1, 1, 90), (90,)])
def test_masks_of_few_queries(shape):
    batch = shape[0] if len(shape) == 4 else 1
    for m in (1, 3):
        mask = masked(shape, bool)
        check((batch, 4, 2, m, 90, 24, 20), mask=mask)


@pytest.mark.parametrize(("heads", "groups", "m"), [(4, 2, 2), (4, 1, 4), (4, 4, 1)])
def test_masks_of_as_many_queries_as_heads_that_share_keys(heads, groups, m):
    shape = 1, heads, m, 17
    check((1, heads, groups, m, 17, 8, 8), mask=masked(shape, bool))


@pytest.mark.parametrize("m", [1, 2, 5])
def test_last_queries_with_a_window(m):
    q, k, v = drawn((1, 2, 2, 8, 8, 8, 8))
    wanted = nn.attention(q, k, v, causal=True, window=3)[:, :, 8 - m :]
    last = q[:, :, 8 - m :]
    y = nn.attention(last, k, v, causal="lower_right", window=3)
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES[:4:3])
def test_gradients_with_masks(shape, causal):
    arrays = drawn((2, 4, 2, 70, 90, 24, 20))
    held = [*tensors(arrays, grad=True)]
    truths, floats = masked(shape, bool), masked(shape, float).astype(np.float32)
    for mask in (truths, floats):
        wide = torch.as_tensor(mask)
        learned = [] if is_bool(wide) else [wide.double().requires_grad_()]
        own = learned[0] if learned else wide
        y = in_float64(*held, causal=causal, mask=own)
        dy = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
        given = [*held, *learned]
        right = torch.autograd.grad(y, given, *tensors([dy]))
        made = nn.attention_grad(dy, *arrays, causal=causal, mask=mask)
        for got, wanted in zip(made, right, strict=True):
            most = max(1, wanted.abs().max().item())
            np.testing.assert_allclose(got, wanted.numpy(), rtol=3e-6, atol=3e-6 * most)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_masks_of_types(dtype):
    q, k, v = drawn((2, 4, 2, 70, 90, 24, 20), dtype)
    for mask in (masked((70, 90), float).astype(np.float32), masked((90,), bool)):
        y = nn.attention(q, k, v, mask=mask).astype(np.float64)
        wanted = formula(q, k, v, mask=mask)
        tolerance = max(EPSILON[dtype], 1e-7 if dtype is np.float64 else 0)
        np.testing.assert_allclose(y, wanted, rtol=tolerance, atol=tolerance)


def test_masks_of_hidden_rows_and_strided_masks():
    q, k, v = drawn((2, 2, 2, 70, 30, 24, 20))
    mask = np.ones((70, 30), bool)
    mask[7] = False
    y = nn.attention(q, k, v, mask=mask)
    assert not y[:, :, 7].any()
    assert y[:, :, 6].all()
    turned = masked((30, 70), bool).T
    found = nn.attention(q, k, v, mask=turned)
    np.testing.assert_array_equal(found, nn.attention(q, k, v, mask=turned.copy()))
    empty = nn.attention(*drawn((0, 2, 1, 5, 6, 8, 8)), mask=np.ones((5, 6), bool))
    assert empty.shape == (0, 2, 5, 8)


def test_masks_that_do_not_fit():
    q, k, v = drawn((2, 4, 2, 5, 6, 8, 8))
    for shape in ((5, 5), (3, 1, 5, 6), (2, 2, 5, 6), (1, 2, 4, 5, 6)):
        with pytest.raises(ShapeError, match="does not fit scores"):
            nn.attention(q, k, v, mask=np.ones(shape, bool))
    with pytest.raises(DTypeError, match="truth values, or floats"):
        nn.attention(q, k, v, mask=np.ones((5, 6), np.int64))


def test_one_kernel_for_all_lengths():
    def kernels():
        return sum(key[0] == "kernel" for key in nn.attention.kernels)

    check((*LENGTHS[0], 24, 20), causal=True)
    before = kernels()
    for lengths in LENGTHS[1:]:
        check((*lengths, 24, 20), causal=True)
    assert kernels() == before


def test_queries_after_cached_keys():
    q, k, v = drawn((2, 4, 2, 50, 50, 24, 20))
    whole = nn.attention(q, k, v, causal=True)
    for start in (49, 40, 1):
        late = nn.attention(q[:, :, start:], k, v, causal="lower_right")
        np.testing.assert_allclose(late, whole[:, :, start:], rtol=1e-5, atol=1e-6)


def test_queries_that_see_no_key_give_zeros():
    q, k, v = drawn((1, 2, 2, 90, 30, 24, 20))
    y = nn.attention(q, k, v, causal="lower_right")
    assert not y[:, :, :60].any()
    assert y[:, :, 60:].all()


def test_large_scores_do_not_overflow():
    q, k, v = drawn((1, 2, 2, 70, 130, 24, 20))
    y = nn.attention(q * 1e4, k * 1e4, v)
    np.testing.assert_allclose(y, formula(q * 1e4, k * 1e4, v), rtol=1e-5, atol=1e-5)


def test_nan_and_infinities_stay_in_their_rows():
    q, k, v = drawn((1, 2, 2, 70, 130, 24, 20))
    q[0, 0, 3, 5], q[0, 1, 69, 0] = np.nan, np.inf
    v[0, 1, 7, 2] = np.inf
    wanted, got = formula(q, k, v), nn.attention(q, k, v)
    assert np.isnan(got[0, 0, 3]).all()
    assert np.isnan(got[0, 1, 69]).all()
    assert np.isposinf(got[0, 1, :69, 2]).all()
    finite = np.isfinite(wanted)
    assert (np.isfinite(got) == finite).all()
    np.testing.assert_allclose(got[finite], wanted[finite], rtol=3e-6, atol=3e-6)


def test_nan_keys_after_a_query_do_not_matter():
    q, k, v = drawn((1, 2, 2, 200, 200, 24, 20))
    k[:, :, 130], v[:, :, 199] = np.nan, np.nan
    y = nn.attention(q, k, v, causal=True)
    assert np.isfinite(y[:, :, :128]).all()
    assert np.isnan(y[:, :, 130:]).all()


def test_empty_and_strided_arrays():
    empty = nn.attention(*drawn((0, 2, 1, 5, 6, 8, 8)))
    assert empty.shape == (0, 2, 5, 8)
    assert nn.attention(*drawn((2, 2, 1, 0, 6, 8, 8))).shape == (2, 2, 0, 8)
    q, k, v = (x.swapaxes(1, 2) for x in drawn((2, 33, 33, 4, 4, 8, 8)))
    y = nn.attention(q, k, v)
    np.testing.assert_allclose(y, formula(q, k, v), rtol=3e-6, atol=3e-6)
    out = np.empty_like(y)
    assert nn.attention(q, k, v, out=out) is out
    assert (out == y).all()


@pytest.mark.parametrize(("causal", "window"), MASKS)
def test_gradients_of_one_head_of_depth_1(causal, window):
    check_gradient((1, 1, 1, 7, 16, 1, 4), causal=causal, window=window)


@pytest.mark.parametrize(
    ("depth", "width", "causal", "window"),
    [(0, 4, *mask) for mask in MASKS]
    + [(3, 0, *mask) for mask in MASKS[::3]]
    + [(0, 0, *MASKS[0])],
)  # without values, masks hide nothing of the result
def test_rows_without_numbers(depth, width, causal, window):
    options = {"causal": causal, "scale": 0.5, "window": window}
    check((2, 4, 2, 7, 16, depth, width), **options)
    check_gradient((2, 4, 2, 7, 16, depth, width), **options)
    assert nn.attention(*drawn((1, 1, 1, 7, 16, depth, width))).shape[-1] == width


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (((2, 5, 8), (2, 5, 8), (2, 5, 8)), "batch, heads, length, depth"),
        (((2, 4, 5, 8), (2, 3, 5, 8), (2, 3, 5, 8)), "evenly"),
        (((2, 4, 5, 8), (2, 2, 5, 9), (2, 2, 5, 8)), "do not go together"),
        (((2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 6, 8)), "do not go together"),
        (((2, 4, 5, 8), (3, 2, 5, 8), (3, 2, 5, 8)), "do not go together"),
        (((2, 4, 5, 8), (2, 2, 0, 8), (2, 2, 0, 8)), "no keys"),
    ],
)
def test_shapes_that_do_not_fit(shapes, said):
    with pytest.raises(ShapeError, match=said):
        nn.attention(*(np.ones(shape, np.float32) for shape in shapes))


def test_other_bad_calls():
    q, k, v = drawn((1, 2, 2, 5, 6, 8, 8))
    with pytest.raises(ArgumentError, match="window of 0"):
        nn.attention(q, k, v, window=0)
    with pytest.raises(ArgumentError, match="lower_right"):
        nn.attention(q, k, v, causal="upper_left")
    for scale in (1e300, -1e39, np.inf, np.nan):
        with pytest.raises(ArgumentError, match="not a finite f32, which scores are"):
            nn.attention(q, k, v, scale=scale)
        with pytest.raises(ArgumentError, match="finite f32"):
            nn.attention(*(x.astype(np.float16) for x in (q, k, v)), scale=scale)
    check((1, 2, 2, 5, 6, 8, 8), np.float64, scale=1e39)
    with pytest.raises(DTypeError, match="one element type"):
        nn.attention(q, k.astype(np.float64), v)
    with pytest.raises(DTypeError):
        nn.attention(*(x.astype(np.int32) for x in (q, k, v)))
