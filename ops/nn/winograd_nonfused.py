"""Non-fused Winograd convolution, with separate stages, for GPUs.

    image[p, c, t]       B^T d B of each tile t of all images, at (m + 2)^2 points p
    weight[p, o, c]      G w G^T
    sums[p, o, t]        the sum over c of weight[p, o, c] * image[p, c, t]
    y                    A^T sums A of each tile; bias, activation

Each thread transforms one tile, and the sums are a batched matrix product, one matrix
per point. Results must be whole tiles. Lavin and Gray, "Fast algorithms for
convolutional neural networks", 2016.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorlang import ir
from tensorlang.ops.nn.convolution_problem import Problem
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.nn.images import source, staged
from tensorlang.ops.nn.multi_store import Indices, extents, multi_store
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS, Transforms
from tensorlang.ops.nn.winograd_products import transformed


def conv(m: int) -> Callable[..., ir.Tensor]:
    """As `convolution_definitions.conv`, for 3x3 windows with stride 1: F(m, 3)."""

    def define(
        x: ir.Tensor,
        w: ir.Tensor,
        b: ir.Tensor | None,
        p: Problem,
        activation: str | None,
        *,
        addend: ir.Tensor | None = None,
    ) -> ir.Tensor:
        transforms = TRANSFORMS[m]
        tiles = [n // m for n in p.result]
        image = _image(x, p, tiles, transforms)
        sums = _sums(image, _weight(w, transforms))
        n = x.buffer.shape[0]
        return _results(sums, n, b, tiles, transforms, activation, addend)

    return define


def _image(
    x: ir.Tensor, p: Problem, tiles: list[int], transforms: Transforms
) -> ir.Tensor:
    n, inputs = x.buffer.shape[:2]
    low, size = p.padding[::2], p.image
    points, m = transforms.points, transforms.outputs
    shape = (*extents(points**2), inputs, n * (tiles[0] * tiles[1]))
    made = ir.Buffer("image", ir.f32, shape)

    def body(at: Indices) -> list[tuple[Indices, ir.Expr]]:
        batch, c, i, j = at
        rows, columns = (
            [source(tile * m + at - before, extent) for at in range(points)]
            for tile, before, extent in zip((i, j), low, size, strict=True)
        )
        tile = (batch * tiles[0] + i) * tiles[1] + j

        def pixel(row: int, column: int) -> ir.Expr:
            (y, above), (left, beside) = rows[row], columns[column]
            return ir.select(
                above & beside, x[batch, c, y, left], ir.as_expr(0.0, ir.f32)
            )

        return transformed(transforms.image, pixel, lambda p: (p, c, tile))

    return multi_store(
        made, ("b", "c", "i", "j"), (n, inputs, *extents(*tiles)), body, x
    )


def _weight(w: ir.Tensor, transforms: Transforms) -> ir.Tensor:
    outputs, inputs = w.buffer.shape[:2]
    made = ir.Buffer(
        "weight", ir.f32, (*extents(transforms.points**2), outputs, inputs)
    )

    def body(at: Indices) -> list[tuple[Indices, ir.Expr]]:
        return transformed(
            transforms.weight, lambda y, x: w[(*at, y, x)], lambda p: (p, *at)
        )

    return multi_store(made, ("wo", "wc"), (outputs, inputs), body, w)


def _sums(image: ir.Tensor, weight: ir.Tensor) -> ir.Tensor:
    points, outputs, _ = weight.shape
    _, inputs, tiles = image.shape
    c = ir.reduce_axis(inputs, "sc")

    def element(at: Indices) -> ir.Reduction:
        p, o, tile = at
        return ir.sum(weight[p, o, c.var] * image[p, c.var, tile], c)

    shape = (points, outputs, tiles)
    return staged(shape, ("p", "o", "t"), element, "sums")


def _results(  # noqa: PLR0917 - operands of an epilogue
    sums: ir.Tensor,
    n: ir.Expr,
    b: ir.Tensor | None,
    tiles: list[int],
    transforms: Transforms,
    activation: str | None,
    addend: ir.Tensor | None,
) -> ir.Tensor:
    _, outputs, _ = sums.buffer.shape
    points, m = transforms.points, transforms.outputs
    y = ir.Buffer("y", ir.f32, (n, outputs, *extents(*(count * m for count in tiles))))

    def body(at: Indices) -> list[tuple[Indices, ir.Expr]]:
        batch, o, i, j = at
        tile = (batch * tiles[0] + i) * tiles[1] + j

        def point(row: int, column: int) -> ir.Expr:
            return sums[row * points + column, o, tile]

        def place(number: int) -> Indices:
            row, column = divmod(number, m)
            return batch, o, i * m + row, j * m + column

        def finished(value: ir.Expr, to: Indices) -> ir.Expr:
            value = value if b is None else value + b[o]
            value = value if addend is None else value + addend[to]
            return activated(value, activation)

        stores = transformed(transforms.result, point, place)
        return [(to, finished(value, to)) for to, value in stores]

    inputs = [each for each in (sums, b, addend) if each is not None]
    sizes = (n, outputs, *extents(*tiles))
    return multi_store(y, ("yb", "yo", "yi", "yj"), sizes, body, *inputs)
