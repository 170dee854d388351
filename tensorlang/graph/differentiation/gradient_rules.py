"""Gradient rules of operators that need more than `<op>_grad`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tensorlang.graph.differentiation.autodiff import backward
from tensorlang.graph.differentiation.gradients import (
    Gradients,
    Site,
    by_name,
    or_zeros,
    replaying,
    rule,
)
from tensorlang.graph.recurrent import STEPS, steps
from tensorlang.graph.values import (
    Argument,
    Named,
    OpResult,
    Tensor,
    Value,
    zeros,
)
from tensorlang.ops import math, nn, random
from tensorlang.ops.registry import find


@rule("nn.layer_norm")
def _layer_norm(site: Site) -> Gradients:
    """`<op>_grad`; a bias without a weight sets the dimensions, like a unit weight."""
    x, weight, bias = (site.named[name] for name in ("x", "weight", "bias"))
    if weight is not None or bias is None:
        return by_name(site, ("x", "weight", "bias"))
    ones = zeros(bias.spec) + 1.0
    dx, _, dbias = nn.layer_norm_grad(site.dy, x, ones, site.named["eps"])
    return [(x, dx), (bias, dbias)]


def _norm(site: Site) -> Gradients:
    """`<op>_grad`; without a weight, the bias gradient is a sum over the other axes."""
    named, dy = site.named, site.dy
    found = by_name(site, ("x", "weight", "bias"))
    if named["weight"] is None and site.wants("bias"):
        others = other_axes(dy.ndim, named["axis"])
        found.append((named["bias"], math.sum(dy, others)))
    return found


@rule("nn.batch_norm_train")
def _batch_norm_train(site: Site) -> Gradients:
    """Like `_norm`, and through the updated running moments."""
    named, found = site.named, []
    first, mean, var = site.dys
    if first is not None:
        found = _norm(replace(site, dys=(first,)))
    x, others = named["x"], other_axes(named["x"].ndim, named["axis"])
    left, rate = 1.0 - named["momentum"], named["momentum"]
    if mean is not None:
        found.append((named["running_mean"], mean * left))
        found.append((x, math.mean_grad(mean * rate, x, others)))
    if var is not None:
        found.append((named["running_var"], var * left))
        found.append((x, math.var_grad(var * rate, x, others, 1.0)))
    return found


@rule("nn.batch_norm")
def _batch_norm(site: Site) -> Gradients:
    """Like `_norm`, and for the moments."""
    named, dy, found = site.named, site.dy, _norm(site)
    if not (site.wants("mean") or site.wants("var")):
        return found
    others = other_axes(dy.ndim, named["axis"])
    mean, var, weight = (named[name] for name in ("mean", "var", "weight"))
    scale = math.rsqrt(var + named["eps"])
    gain = scale if weight is None else scale * weight
    centred = named["x"] - along_axis(mean, dy.ndim, named["axis"])
    by_scale = math.sum(dy * centred, others) * gain
    found.append((mean, math.negative(math.sum(dy, others) * gain)))
    found.append((var, by_scale * math.square(scale) * -0.5))
    return found


def other_axes(rank: int, axis: int) -> tuple[int, ...]:
    """All axes but one."""
    return tuple(at for at in range(rank) if at != axis % rank)


def along_axis(vector: Value, rank: int, axis: int) -> OpResult:
    """Reshape a vector to broadcast along one axis."""
    shape = [1] * rank
    shape[axis] = -1
    return nn.reshape(vector, tuple(shape))


@rule("math.add", "math.subtract")
def _added(site: Site) -> Gradients:
    """Addition: the gradient itself, summed over broadcast dimensions."""
    found: Gradients = []
    for n, name in enumerate(("a", "b")):
        operand = site.named[name]
        if isinstance(operand, Value) and operand in site.wanted:
            back = unbroadcast(site.dy, operand)
            negative = n == 1 and site.node.id == "math.subtract"
            found.append((operand, math.negative(back) if negative else back))
    return found


@rule("nn.slice")
def _slice(site: Site) -> Gradients:
    """Needs only the shape of the sliced array, which is therefore not saved."""
    x, *bounds = (site.named[name] for name in ("x", "begin", "end", "step"))
    return [(x, nn.slice_grad(site.dy, zeros(x.spec), *bounds))]


@rule("nn.pad")
def _pad(site: Site) -> Gradients:
    """The unpadded part; for a tensor `value`, the sum of the rest."""
    names = ("x", "padding", "value", "mode")
    x, padding, value, mode = (site.named[name] for name in names)
    inside = nn.pad_grad(site.dy, x, padding, mode=mode)
    found: Gradients = [(x, inside)]
    if site.wants("value"):
        found.append((value, math.sum(site.dy) - math.sum(inside)))
    return found


@rule("nn.split")
def _split(site: Site) -> Gradients:
    """The gradients of the parts, concatenated."""
    pairs = zip(site.dys, site.node.results, strict=True)
    parts = [or_zeros(dy, value) for dy, value in pairs]
    return [(site.named["x"], nn.concatenate(parts, site.named["axis"]))]


def unbroadcast(dy: Value, operand: Value) -> OpResult:
    """Sum a gradient to the operand's shape."""
    if dy.shape == operand.shape:
        return dy
    ahead = dy.ndim - operand.ndim
    same = zip(dy.shape[ahead:], operand.shape, strict=True)
    kept = tuple(n for n, (a, b) in enumerate(same) if a != b)
    if ahead:
        dy = math.sum(dy, tuple(range(ahead)))
    return math.sum(dy, kept, keepdims=True) if kept else dy


@rule("nn.mse")
def _mse(site: Site) -> Gradients:
    found = by_name(site, ("prediction",))
    if site.wants("truth"):
        found.append((site.named["truth"], math.negative(found[0][1])))
    return found


@rule("nn.dropout_train")
def _dropout_train(site: Site) -> Gradients:
    """The mask of the forward call, from its input state."""
    named = site.named
    with replaying():
        _, key = random.split(named["state"])
    made = nn.dropout_grad(site.dy, named["rate"], key=key, stream=named["stream"])
    return [(named["x"], made)]


@rule("nn.dense")
def _dense(site: Site) -> Gradients:
    named, dy = site.named, site.dy
    found: Gradients = []
    if named["residual"] is not None:
        found.append((named["residual"], dy))
    if named["key"] is not None:
        dy = nn.dropout_grad(dy, named["dropout"], key=named["key"])
    x, w, b, layout = (named[name] for name in ("x", "w", "b", "layout"))
    exact = named["residual"] is None

    def before() -> OpResult:
        return nn.dense(x, w, b, layout=layout)

    dy = _through_activation(site, dy, before, exact=exact)
    if x in site.wanted:
        made = nn.dense_grad(dy, x, w, layout=layout)
        return [*found, *_present((x, w, b), made)]
    rows = [nn.reshape(each, (-1, each.shape[-1])) for each in (dy, x)]
    if layout == "io":
        rows.reverse()
    dw = math.matmul(*rows, transpose_a=True) if w in site.wanted else None
    db = math.sum(dy, tuple(range(dy.ndim - 1))) if b in site.wanted else None
    return [*found, *_present((w, b), (dw, db))]


@rule(*STEPS)
def _recurrent(site: Site) -> Gradients:
    """From what is saved of steps; otherwise through them, which are computed again."""
    if site.named.get("saves"):
        return _through_time(site)
    made = steps(site.node.id, site.named)
    wanted = list(site.wanted)
    found = backward(made, site.dys, wanted)
    return [(value, found.get(value)) for value in wanted]


def _through_time(site: Site) -> Gradients:
    """The gradients of gates, step by step; those of weights are a product of all."""
    named, ends = site.named, [name for name in ("h", "c") if name in site.named]
    saved = site.node.results[1 + len(ends) :]
    given = {
        name: named[name]
        for name in ("peepholes", "lengths", "order", "reverse")
        if name in named
    }
    dys = dict(zip(("dy", "dh", "dc"), site.dys[: 1 + len(ends)], strict=False))
    gradient = find(f"{site.node.id}_gates_grad")
    dgates, dsums, *left = gradient(named["r"], *saved, **dys, **given)
    found: Gradients = [(named["gates"], dgates)]
    if site.wants("r"):
        rows = [nn.reshape(each, (-1, each.shape[-1])) for each in (dsums, saved[0])]
        found.append((named["r"], math.matmul(*rows, transpose_a=True)))
    if site.wants("b"):
        found.append((named["b"], math.sum(dsums, (0, 1))))
    if site.wants("h"):
        found.append((named["h"], math.matmul(dsums[0], named["r"]) + left[0]))
    if site.wants("c"):
        found.append((named["c"], left[1]))
    if site.wants("peepholes"):
        found.append((named["peepholes"], _of_peepholes(dsums, saved[1], given)))
    return found


def _of_peepholes(dsums: OpResult, cells: Value, given: Named) -> OpResult:
    """Sums of products with cell states: before steps, and after them for `o`."""
    size = cells.shape[-1]
    slopes = dict(
        zip(given["order"], nn.split(dsums, len(given["order"]), -1), strict=True)
    )
    pairs = {"i": (slopes["i"], cells), "f": (slopes["f"], cells)}
    assert isinstance(cells, Tensor)
    pairs["o"] = (slopes["o"][:-1], cells[1:])
    sums = [math.sum(math.multiply(*pairs[name]), (0, 1)) for name in "iof"]
    return nn.concatenate([nn.reshape(each, (size,)) for each in sums])


@rule("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _convolution(site: Site) -> Gradients:
    named, node = site.named, site.node
    rest = {
        name: named[name]
        for name in ("stride", "padding", "dilation", "groups", "layout")
    }
    x, w, b, addend = (named[name] for name in ("x", "w", "b", "addend"))

    def before() -> OpResult:
        return node.op(x, w, b, addend=addend, **rest)  # type: ignore[operator]

    dy = _through_activation(site, site.dy, before, exact=True)
    found = _present((addend,), (dy,))
    if x in site.wanted:
        made = find(f"{node.id}_grad")(dy, x, w, b, **rest)
        return [*found, *_present((x, w, b), made)]
    weight = find(f"{node.id}_grad_weight")
    dw = weight(dy, x, w.shape[2:], **rest) if w in site.wanted else None
    db = by_channel(dy, named["layout"], w.ndim - 2) if b in site.wanted else None
    return [*found, *_present((w, b), (dw, db))]


def by_channel(dy: Value, layout: str | None, rank: int) -> OpResult:
    """The sum per channel: over the pixels of `rank` dimensions, then over a batch."""
    if str(layout or "NCHW").endswith("C"):
        return math.sum(dy, tuple(range(dy.ndim - 1)))
    sums = math.sum(dy, tuple(range(dy.ndim - rank, dy.ndim)))
    return math.sum(sums, 0) if sums.ndim > 1 else sums


def _present(values: Sequence[Argument], made: Sequence[Value | None]) -> Gradients:
    """The arguments that are present, with their gradients."""
    pairs = zip(values, made, strict=False)
    return [(value, each) for value, each in pairs if isinstance(value, Value)]


def _through_activation(
    site: Site, dy: Value, before: Callable[[], OpResult], *, exact: bool
) -> OpResult:
    """The gradient before a fused activation.

    For relu it follows from the sign of the result if that is the activation's own
    (elements dropped by dropout have no gradient either); others recompute the
    activation's input.
    """
    name = site.named["activation"]
    if name is None:
        return dy
    if name == "relu" and exact:
        return nn.relu_grad(dy, site.node.results[0])
    if name == "relu6":
        return math.clip_grad(dy, before(), 0.0, 6.0)
    if name == "gelu_tanh":
        return nn.gelu_grad(dy, before(), "tanh")
    return find(f"nn.{name}_grad")(dy, before())
