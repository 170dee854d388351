"""Schedules find their stages by accesses, not by names."""

import itertools
import re

import pytest

from tensorlang import ir
from tensorlang.ir.contents import allocations, binders, blocks, loops
from tensorlang.ir.text.parser import parse
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default, schedules_of
from tensorlang.ops.spec.definition import operator
from tensorlang.targets import Target

CPU = Target(vector_bits=512, vector_registers=32)
THIN = {"groups": 6, "padding": 1}
LAST = {"layout": "NHWC"}
X, DY = (2, 6, 9, 11), (2, 8, 9, 11)
X_LAST, DY_LAST = (2, 9, 11, 6), (2, 9, 11, 8)
CASES = {
    "implicit_gemm": ("nn.conv2d", (X, (8, 6, 3, 3), (8,)), {"activation": "relu"}),
    "implicit_gemm ": ("nn.conv2d", (X, (8, 6, 3, 3)), {"stride": 2, "dtypes": "bf16"}),
    "implicit_gemm, pixels": ("nn.conv1d", ((2, 6, 99), (8, 6, 1)), {}),
    "implicit_gemm, gradient": (
        "nn.conv2d_grad",
        ((2, 64, 9, 11), (2, 64, 9, 11), (64, 64, 9, 9)),
        {"padding": 4},
    ),
    "implicit_gemm, transposed": (
        "nn.conv2d_transpose_grad",
        (X, DY, (8, 6, 3, 3)),
        {"padding": 1},
    ),
    "dot_products": ("nn.conv2d_grad_weight", (DY, X), {"window": (1, 1)}),
    "channels_last": ("nn.conv2d", (X_LAST, (40, 6, 3, 3)), LAST | {"dtypes": "bf16"}),
    "channels_last, groups": (
        "nn.conv2d",
        (X_LAST, (8, 3, 3, 3)),
        LAST | {"groups": 2},
    ),
    "channels_last, depthwise": ("nn.conv2d", (X_LAST, (6, 1, 3, 3)), LAST | THIN),
    "channels_last, gradient": (
        "nn.conv2d_grad",
        (DY_LAST, (2, 18, 22, 6), (8, 3, 3, 3)),
        LAST | {"stride": 2, "groups": 2, "padding": (1, 0, 1, 0)},
    ),
    "implicit_gemm, phases": (
        "nn.conv2d_transpose",
        (DY, (8, 6, 3, 3), (6,)),
        {"stride": 2, "padding": 1},
    ),
    "implicit_gemm, depthwise phases": (
        "nn.conv2d_grad",
        ((2, 6, 9, 11), (2, 6, 17, 21), (6, 1, 3, 3)),
        THIN | {"stride": 2},
    ),
    "outer_products": (
        "nn.conv2d_grad_weight",
        (DY, X),
        {"window": (3, 3), "padding": 1},
    ),
    "outer_products, last": (
        "nn.conv2d_grad_weight",
        (DY_LAST, X_LAST),
        LAST | {"window": (3, 3), "padding": 1, "dtypes": "bf16"},
    ),
    "depthwise": ("nn.conv2d", (X, (6, 1, 3, 3)), THIN),
    "depthwise, gradient": (
        "nn.conv2d_grad",
        ((2, 6, 9, 37), (2, 6, 9, 37), (6, 1, 3, 3)),
        THIN,
    ),
    "direct": ("nn.conv2d", (X, (8, 6, 3, 3)), {"padding": 1}),
    "winograd43": (
        "nn.conv2d",
        ((2, 6, 17, 19), (40, 6, 3, 3), (40,)),
        {"padding": 1, "tolerance": 1e-3},
    ),
    "direct, maxima": ("nn.max_pool2d", ((2, 3, 9, 40),), {"kernel": 3, "padding": 1}),
    "direct, means": ("nn.avg_pool2d", ((2, 3, 9, 40),), {"kernel": 3, "stride": 2}),
    "interleaved": (
        "nn.max_pool2d_grad",
        ((2, 3, 9, 40), (2, 3, 9, 40)),
        {"kernel": 3, "stride": 1, "padding": 1},
    ),
    "interleaved, lines": (
        "nn.max_pool2d_grad",
        ((2, 3, 4, 20), (2, 3, 8, 40)),
        {"kernel": 2, "dtypes": "bf16"},
    ),
    "direct, short rows": ("math.sort", ((6, 40),), {}),
    "direct, long rows": ("math.argsort", ((6, 5000),), {}),
    "direct, gathered": ("nn.embedding", ((70,), (9, 512)), {}),
    "direct, added": ("nn.embedding_grad", ((70, 512), (70,), (9, 512)), {}),
}
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_BOUND = re.compile(
    rf"(?<=for ){_WORD.pattern}|{_WORD.pattern}(?==[dors]\w+\(|: \w+ =)"
)


def with_other_names(func):
    """The function with other names for its buffers, blocks, loops and axes."""
    buffers = [*func.buffers, *allocations(func)]
    named = [*buffers, *binders(func), *blocks(func)]
    new = {each.name: f"other{n}_" for n, each in enumerate(named)}
    return parse(_WORD.sub(lambda m: new.get(m[0], m[0]), str(func)))


def numbered(func):
    """The text with names numbered where they are introduced, on one line."""
    names, numbers = {}, itertools.count()
    bound = {found.start() for found in _BOUND.finditer(str(func))}

    def number(found):
        if found.start() in bound or found[0] not in names:
            names[found[0]] = f"v{next(numbers)}"
        return names[found[0]]

    return re.sub(r"\s|,(?=\s*\))", "", _WORD.sub(number, str(func)))


@pytest.mark.parametrize("case", CASES)
def test_names_do_not_matter(case):
    id, shapes, attributes = CASES[case]
    algorithm, op = case.partition(",")[0].strip(), find(id)
    func = op.function(op.workload(*shapes, **attributes), algorithm)
    (entry,) = schedules_of(op, algorithm, CPU)
    made = entry.run(with_other_names(func), CPU).function
    assert numbered(made) == numbered(entry.run(func, CPU).function)


def kinds_of(func):
    return [(loop.kind, loop.extent) for loop in loops(func)]


@operator("own.filtered", scheduled_as="conv")
def filtered(photo, taps):
    batch, (lines, columns, depth) = photo.shape[0], map(int, photo.shape[1:])
    height, width, _, colors = map(int, taps.shape)
    u, v = ir.reduce_axis(height, "u"), ir.reduce_axis(width, "v")
    d = ir.reduce_axis(depth, "d")

    def color(n, row, column, kind):
        seen = photo[n, row + u.var, column + v.var, d.var]
        return ir.sum(seen * taps[u.var, v.var, d.var, kind], (d, u, v))

    shape = (batch, lines - height + 1, columns - width + 1, colors)
    return ir.compute(shape, color, "colors")


@operator("own.blurred", scheduled_as="conv")
def blurred(photo, taps):
    batch, (depth, lines, columns) = photo.shape[0], map(int, photo.shape[1:])
    _, height, width = map(int, taps.shape)
    u, v = ir.reduce_axis(height, "u"), ir.reduce_axis(width, "v")

    def color(n, kind, row, column):
        seen = photo[n, kind, row + u.var, column + v.var]
        return ir.sum(seen * taps[kind, u.var, v.var], (u, v))

    shape = (batch, depth, lines - height + 1, columns - width + 1)
    return ir.compute(shape, color, "colors")


OWN = {
    "channels_last": (
        filtered,
        ((2, 9, 40, 6), (3, 3, 6, 40)),
        ((2, 9, 40, 6), (40, 6, 3, 3)),
        LAST,
    ),
    "depthwise": (
        blurred,
        ((2, 6, 9, 40), (6, 3, 3)),
        ((2, 6, 9, 40), (6, 1, 3, 3)),
        {"groups": 6},
    ),
}


@pytest.mark.parametrize("algorithm", OWN)
def test_a_convolution_of_ones_own_has_the_same_loops(algorithm):
    own, shapes, alike, attributes = OWN[algorithm]
    made, _ = default(own, own.workload(*shapes), CPU, {})
    op = find("nn.conv2d")
    expected, _ = default(op, op.workload(*alike, **attributes), CPU, {})
    found = kinds_of(made.function)  # the library packs its weights before
    assert found == kinds_of(expected.function)[-len(found) :]
