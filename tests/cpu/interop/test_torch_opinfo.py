"""PyTorch's own samples for our operators: each is right, or refused by a typed error.

By default some of them, drawn with a fixed seed; all with `--every-sample`.
"""

import inspect
import itertools
import random
import warnings
from collections import Counter
from functools import cache

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra interop is not installed")
pytest.importorskip("expecttest", reason="PyTorch's samples need expecttest")

from tensorlang.errors import TensorlangError  # noqa: E402
from tensorlang.ops import math, nn  # noqa: E402


class NoOptionError(Exception):
    """A sample takes what our operator has no argument for."""


class OtherOperatorError(Exception):
    """A sample is of another operator of ours, which has a row of its own."""


def moments(*, training):
    """`batch_norm` in training is another operator, which returns the moments, too."""

    def change(given):
        if bool(given.pop("training", False)) != training:
            raise OtherOperatorError
        if not training:
            given.pop("momentum", None)
        if any(v is None for n, v in given.items() if n.endswith(("mean", "var"))):
            raise NoOptionError("no moments")
        return given

    return change


def one_axis(given):
    """`layer_norm` and `rms_norm` take the axes from the weights."""
    if len(given.pop("normalized_shape")) > 1 and given.get("weight") is None:
        raise NoOptionError("normalized_shape of several axes")
    return given


def pairs(given):
    """`pad` in PyTorch begins with the last axis, and leaves out those in front."""
    x, flat = given["x"], given.pop("pad")
    ends = list(zip(flat[::2], flat[1::2], strict=True))[::-1]
    padding = [(0, 0)] * (x.ndim - len(ends)) + ends
    made = {"x": x, "padding": tuple(padding), "mode": given.get("mode", "constant")}
    if given.get("value"):  # of any type, PyTorch's is a float
        made["value"] = torch.tensor(given["value"]).to(x.dtype).item()
    return made


def corrected(given):
    """`var` in PyTorch corrects for one by default."""
    for name in ("axis", "unbiased"):  # `var(x, unbiased)` is another overload
        if isinstance(given.get(name), bool):
            given["correction"] = float(given.pop(name))
    given.setdefault("correction", 1.0)
    if given["correction"] is None:
        given["correction"] = 1.0
    return given


def rounded(how):
    """`div` in PyTorch has an option for what other operators of ours do."""

    def change(given):
        if given.pop("rounding_mode") != how:
            raise OtherOperatorError
        return given

    return change


def unstable(given):
    given.pop("stable", None)
    return {"axis": -1} | given


def last(given):
    return {"axis": -1} | given


POOL = "x kernel stride padding ceil_mode count_include_pad divisor"
MAX_POOL = "x kernel stride padding dilation ceil_mode"
CONVOLUTION = "x w b stride padding dilation groups"
NORM = "x mean var weight bias training momentum eps"
TRAINED = NORM.replace("mean var", "running_mean running_var")
TRANSPOSED = "x w b stride padding output_padding groups dilation"
UNARY = (
    "abs ceil cos erf exp expm1 floor isinf isnan log log1p logical_not negative:neg "
    "reciprocal rsqrt sign sin sqrt square tanh"
)
BINARY = (
    "add subtract:sub multiply:mul power:pow floor_divide remainder "
    "maximum minimum equal:eq not_equal:ne greater:gt greater_equal:ge less:lt "
    "less_equal:le logical_and logical_or"
)
FOLDS = "all any argmax argmin logsumexp max:amax mean min:amin prod sum"


def rows(module, names, arguments, prefix=""):
    for name in names.split():
        own, _, theirs = name.partition(":")
        yield getattr(module, own), prefix + (theirs or own), arguments, None


F = "nn.functional."
# our operator, PyTorch's, our parameters in the order of PyTorch's; what changes them
TABLE = [
    *rows(math, UNARY, "x"),
    *rows(math, BINARY, "a b"),
    *rows(math, FOLDS, "x axis keepdims dtype"),
    *rows(nn, "sigmoid", "x"),
    *rows(nn, "relu silu", "x", F),
    (math.argsort, "argsort", "x axis descending", unstable),
    (math.sort, "sort", "x axis descending", unstable),
    (math.clip, "clamp", "x low high", None),
    (math.divide, "div:no_rounding_mode", "a b", None),
    (math.trunc_divide, "div:trunc_rounding", "a b rounding_mode", rounded("trunc")),
    (math.floor_divide, "div:floor_rounding", "a b rounding_mode", rounded("floor")),
    (math.cumsum, "cumsum", "x axis dtype", None),
    (math.matmul, "matmul", "a b", None),
    (math.var, "var", "x axis unbiased keepdims", corrected),
    (math.where, "where", "a cond b", None),
    *(
        row
        for n in (1, 2, 3)
        for row in (
            *rows(nn, f"avg_pool{n}d", POOL, F),
            *rows(nn, f"max_pool{n}d", MAX_POOL, F),
            *rows(nn, f"adaptive_avg_pool{n}d", "x results", F),
            *rows(nn, f"adaptive_max_pool{n}d", "x results return_indices", F),
            *rows(nn, f"conv{n}d", CONVOLUTION, F),
            *rows(nn, f"conv{n}d_transpose:conv_transpose{n}d", TRANSPOSED, F),
        )
    ),
    (nn.batch_norm, F + "batch_norm", NORM, moments(training=False)),
    (nn.batch_norm_train, F + "batch_norm", TRAINED, moments(training=True)),
    (nn.concatenate, "cat", "arrays axis", None),
    (nn.cross_entropy, F + "cross_entropy", "logits labels", None),
    (nn.dense, F + "linear", "x w b", None),
    (nn.embedding, F + "embedding", "table ids", None),
    (nn.gelu, F + "gelu", "x", None),
    (nn.hard_swish, F + "hardswish", "x", None),
    (nn.layer_norm, F + "layer_norm", "x normalized_shape weight bias eps", one_axis),
    (nn.leaky_relu, F + "leaky_relu", "x negative_slope", None),
    (nn.log_softmax, "log_softmax", "x axis dtype", last),
    (nn.mse, F + "mse_loss", "prediction truth", None),
    (nn.pad, F + "pad", "x pad mode value", pairs),
    (nn.reshape, "reshape", "x shape", None),
    (nn.rms_norm, F + "rms_norm", "x normalized_shape weight eps", one_axis),
    (nn.softmax, "softmax", "x axis dtype", last),
    (nn.softplus, F + "softplus", "x beta threshold", None),
    (nn.split, "split_with_sizes", "x parts axis", None),
    (nn.stack, "stack", "arrays axis", None),
    (nn.transpose, "permute", "x axes", None),
]
RENAMED = {
    "dim": "axis",
    "keepdim": "keepdims",
    "min": "low",
    "max": "high",
    "bias": "b",
    "kernel_size": "kernel",
    "divisor_override": "divisor",
    "output_size": "results",
    "dims": "axes",
    "other": "b",
}
MEANT = {"alpha": 1, "return_indices": False, "rounding_mode": None, "dtype": None}
ROWS = {f"{op.id}-{theirs}": (op, theirs, *more) for op, theirs, *more in TABLE}
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64")
DTYPES = tuple(getattr(torch, name) for name in (*DTYPES, "uint8", "bool"))
FEW = (torch.float32, torch.float16, torch.bfloat16, torch.int32)


@cache
def infos():
    """PyTorch's entries by name, and by `name:variant`; imports take seconds."""
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db

    # it reads the source of all frames, to find a test of unittest: there is none
    common_utils.extract_test_fn = lambda: None
    found = {}
    for info in op_db:
        for name in {info.name, f"{info.name}:{info.variant_test_name}"}:
            found.setdefault(name, []).append(info)
    return found


def arguments(sample, names, change, op):
    """The arguments of a sample, by the names of our parameters."""
    names = names.split()
    values = (sample.input, *sample.args)
    if len(values) > len(names):
        values = (sample.input, values[1:]) if names[-1] in ("axes", "shape") else ()
    if not values:
        raise NoOptionError("positional arguments")
    given = dict(zip(names, values, strict=False))
    for name, value in sample.kwargs.items():
        own = name if name in _taken(op) or name in names else RENAMED.get(name, name)
        given[own] = value
    given = {n: v for n, v in given.items() if n not in MEANT or v != MEANT[n]}
    given = change(given) if change else given
    if lacking := set(given) - _taken(op):
        raise NoOptionError(", ".join(sorted(lacking)))
    return {n: v for n, v in given.items() if v is not None or n == "axis"}


def _taken(op):
    return set(inspect.signature(op).parameters)


def first(made):
    return made[0] if isinstance(made, tuple) else made


def exact(info, sample):
    """What PyTorch gives in f64, rounded to the type that it gives."""
    if info.name == "argsort":  # without `stable`, the order of equal elements is open
        given = dict(zip(("dim", "descending"), sample.args, strict=False))
        given |= sample.kwargs | {"stable": True}
        sample = type(sample)(sample.input, kwargs=given)
    theirs = info.op(sample.input, *sample.args, **sample.kwargs)
    wide = sample.transform(
        lambda v: (
            v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        )
    )
    more = info.op(wide.input, *wide.args, **wide.kwargs)
    whole = isinstance(theirs, (tuple, list)) and info.name == "split_with_sizes"
    if whole:
        return list(theirs), [b.to(a.dtype) for a, b in zip(theirs, more, strict=True)]
    theirs, more = first(theirs), first(more)
    return [theirs], [more.to(theirs.dtype)]


def close(found, wanted):
    """Whether a result is one, to the tolerance of its type."""
    if wanted.is_floating_point() and found.dtype != wanted.dtype:
        return False
    try:
        torch.testing.assert_close(
            found, wanted, equal_nan=True, check_dtype=False, check_stride=False
        )
    except AssertionError:
        return False
    return True


def as_near(found, theirs, exact):
    """Whether floats are off by at most four times what PyTorch's are, at worst.

    Of sums that cancel, no f32 is near the f64 result by the result's own size.
    """
    if found.dtype != exact.dtype or found.shape != exact.shape or not found.numel():
        return False
    own, other = (each.double() - exact.double() for each in (found, theirs))
    return exact.is_floating_point() and bool(own.abs().max() <= 4 * other.abs().max())


def has_options(op, names, change):
    """Tells of a sample whether our operator has its options."""

    def tell(sample):
        try:
            arguments(sample, names, change, op)
        except (NoOptionError, OtherOperatorError):
            return False
        return True

    return tell


def outcome(op, info, sample, names, change):
    """What became of a sample, and what there is to say of it."""
    try:
        given = arguments(sample, names, change, op)
    except NoOptionError as problem:
        return "without", str(problem)
    except OtherOperatorError:
        return "another operator", ""
    try:
        theirs = exact(info, sample)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return "PyTorch refuses", ""
    try:
        made = op(**given)
    except TensorlangError as problem:
        return "refused", str(problem)
    except Exception as problem:
        return "untyped", f"{type(problem).__name__}: {problem}"
    made = list(made) if info.name == "split_with_sizes" else [first(made)]
    for found, *both in zip(made, *theirs, strict=True):
        if not any(close(found, wanted) for wanted in both) and not as_near(
            found, *both
        ):
            return "wrong", f"{given}\nours {found}\nPyTorch {both[0]}"
    return "right", ""


EXTREMAL = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0)


def extremal(sample, value):
    """The sample with a special value in some places of its arrays of floats."""

    def planted(given):
        if not isinstance(given, torch.Tensor) or not given.is_floating_point():
            return given
        made = given.detach().clone()
        made.reshape(-1)[::3] = value
        return made.reshape(given.shape)

    return sample.transform(planted)


def drawn(found, limit):
    """Some of the samples; always the same."""
    found = list(found)
    if limit is None or len(found) <= limit:
        return found
    return random.Random(0).sample(found, limit)


def samples(info, limit, dtypes, has_options):
    """Samples of the types that PyTorch has, then those with extremal values."""
    supported = [t for t in dtypes if t in info.dtypes]
    for dtype in supported:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            every = list(info.sample_inputs("cpu", dtype, requires_grad=False))
            if limit is not None:
                every = list(filter(has_options, every)) or every
            chosen = drawn(every, limit)
        yield from chosen
        if dtype.is_floating_point and info.name != "nn.functional.embedding":
            several = itertools.product(chosen, EXTREMAL)
            yield from itertools.starmap(extremal, drawn(several, limit))


@pytest.mark.parametrize("row", ROWS)
def test_of_pytorchs_samples(row, request, record_property) -> None:
    op, theirs, names, change = ROWS[row]
    every = request.config.getoption("--every-sample")
    limit, dtypes = (None, DTYPES) if every else (1, FEW)
    counts, said = Counter(), []
    variants = [i for i in infos()[theirs] if i.variant_test_name != "triton_optimized"]
    for info in variants[: None if every else 1]:
        for sample in samples(info, limit, dtypes, has_options(op, names, change)):
            with np.errstate(all="ignore"):
                kind, what = outcome(op, info, sample, names, change)
            counts[kind] += 1
            if kind in ("wrong", "untyped"):
                said.append(f"{kind}: {sample}\n{what}")
    record_property("counts", dict(counts))
    assert not said, "\n\n".join(said[:5])
    assert counts["right"] or counts["refused"]
