"""Allocate omitted outputs, whose shapes follow from the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.runtime import calling
from tensorlang.runtime.arrays import buffers
from tensorlang.runtime.arrays import host_arrays as arrays
from tensorlang.runtime.arrays.device_arrays import PlacedArray
from tensorlang.runtime.arrays.host_arrays import Foreign
from tensorlang.runtime.signature import Dim, Scalars, Signature, evaluate

Maker: TypeAlias = Callable[[Sequence[object], Mapping[str, object]], list[PlacedArray]]
"""From a call's arguments, without outputs, and named scalars to output arrays."""

Empty: TypeAlias = Callable[[tuple[int, ...], np.dtype], PlacedArray]
Origin: TypeAlias = "int | tuple[int, int]"  # a size, or (input, axis)


def output_maker(signature: Signature, empty: Empty = buffers.empty) -> Maker:
    """The function that allocates a kernel's outputs, planned ahead if possible.

    Args:
        signature: The kernel's signature.
        empty: Allocates an uninitialised array of a shape and dtype.
    """
    origins = _origins(signature)
    plans: list[tuple[tuple[Origin, ...], np.dtype]] = []
    for position in signature.outs:
        spec = signature.buffers[position]
        plan = tuple(_origin(dim, origins) for dim in spec.shape)
        if None in plan:
            return lambda args, named: _evaluated(signature, args, named, empty)
        plans.append((plan, spec.numpy))  # type: ignore[arg-type]

    def planned(
        args: Sequence[Foreign], named: Mapping[str, object]
    ) -> list[PlacedArray]:
        try:
            return [empty(_shape(plan, args), dtype) for plan, dtype in plans]
        except (AttributeError, IndexError, TypeError):
            return _evaluated(signature, args, named, empty)

    return planned


def _shape(plan: tuple[Origin, ...], args: Sequence[Foreign]) -> tuple[int, ...]:
    """A planned shape; launching checks that the inputs agree on the sizes."""
    return tuple([d if isinstance(d, int) else args[d[0]].shape[d[1]] for d in plan])


def _origins(signature: Signature) -> dict[str, tuple[int, int]]:
    """For each scalar that an input's shape determines: (input, axis)."""
    found: dict[str, tuple[int, int]] = {}
    inputs = [spec for spec in signature.buffers if spec.role != "out"]
    for position, spec in enumerate(inputs):
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, str):
                found.setdefault(dim, (position, axis))
    return found


def _origin(dim: Dim, origins: Mapping[str, tuple[int, int]]) -> Origin | None:
    """The origin of a dimension's size; None if it must be computed."""
    if isinstance(dim, int):
        return dim
    return origins.get(dim) if isinstance(dim, str) else None


def _evaluated(
    signature: Signature,
    args: Sequence[Foreign],
    named: Mapping[str, object],
    empty: Empty,
) -> list[PlacedArray]:
    """The general case: infer all scalars, checking the inputs' shapes."""
    count = len(signature.buffers) - len(signature.outs)
    inputs, values = args[:count], args[count:]
    scalars: Scalars = {s.name: v for s, v in zip(signature.free, values, strict=False)}
    scalars.update(named)
    calling.bind(signature, list(_shapes(signature, inputs)), scalars)
    try:
        shapes = [
            tuple(evaluate(dim, scalars) for dim in signature.buffers[i].shape)
            for i in signature.outs
        ]
    except KeyError as error:
        name = error.args[0]
        raise ArgumentError(
            f"{signature.name}: no input's shape determines {name}; pass {name}= or "
            "out="
        ) from None
    return [
        empty(_sound(signature, shape), signature.buffers[i].numpy)
        for i, shape in zip(signature.outs, shapes, strict=True)
    ]


def _shapes(
    signature: Signature, inputs: Sequence[object]
) -> Sequence[tuple[int, ...] | None]:
    """The inputs' shapes at their buffers' positions, None for outputs."""
    given = iter(inputs)
    found: list[tuple[int, ...] | None] = []
    for spec in signature.buffers:
        if spec.role == "out":
            found.append(None)
            continue
        value = next(given, None)
        where = f"{signature.name}: {spec.name}"
        shape = getattr(value, "shape", None)
        found.append(arrays.view(value, where).shape if shape is None else tuple(shape))
    return found


def _sound(signature: Signature, shape: tuple[int, ...]) -> tuple[int, ...]:
    if any(size < 0 for size in shape):
        raise ArgumentError(f"{signature.name}: an output cannot have shape {shape}")
    return shape
