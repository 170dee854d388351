"""Workloads of an operator: the shapes, types and attributes that a kernel is for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang import ir, lazy
from tensorlang.errors import ShapeError
from tensorlang.ops.kernels.requests import whole_shapes
from tensorlang.ops.spec.signature import DERIVED, NUMBERS, Arrays, derived_scalars
from tensorlang.workload import Workload, attributes_of

with lazy.modules(__name__):  # it stands on operators
    from tensorlang.ops.random import impls

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator, Shapes

SHAPE: Final = "shape"  # in place of a dtype, for parameters that are only shapes


def workload(
    op: Operator,
    shapes: Shapes,
    dtypes: tuple[str, ...] | str | None,
    threads: int,
    attributes: Mapping[str, object],
) -> Workload:
    """The workload of a call; see `Operator.workload`.

    Raises:
        ShapeError: one is no shape.
    """
    given = whole_shapes(shapes) or op.usual_shapes
    asked = attributes if shapes else {**op.usual_attributes, **attributes}
    asked_for = (p.is_shape and not p.is_optional for p in op.spec.parameters)
    unsaid = len(given) == len(op.spec.arrays) + sum(asked_for)
    keys, kinds = op.spec.keys if unsaid else (), dtypes
    if isinstance(kinds, tuple) and keys and not op.spec.arrays:
        (kinds,) = kinds  # of what is drawn
    if isinstance(kinds, str):
        kinds = ir.as_dtype(kinds).name
        if not any(kinds in kind.dtypes for kind in op.spec.arrays.values()):
            asked = {**dict.fromkeys(op.spec.types, kinds), **asked}
    named = op.spec.fitted(asked, len(given) + len(keys))
    slots, rest = op.spec.slots(named), iter(given)
    words = {name: _words(str(named[name])) for name in op.spec.keys}
    held = [words[n][:1] if n in keys else islice(rest, 1) for n in slots]
    given = (*chain(*held), *rest)
    if isinstance(kinds, tuple) and keys:
        each = iter(kinds)
        kinds = (*(words[n][1] if n in keys else next(each) for n in slots), *each)
    elif not isinstance(kinds, tuple):
        kinds = tuple(
            words[name][1] if name in words else _usual_type(kind, kinds, same)
            for name, shape, before in zip(slots, given, (None, *given), strict=False)
            for kind, same in [(op.spec.arrays.get(name, Arrays()), shape == before)]
        )
        kinds += (SHAPE,) * (len(given) - len(kinds))
    if op.derive is not None and DERIVED not in asked:
        all_of = {**named, **asked}
        if variant := _deriving(op, all_of, kinds[0], op.measured[0])[0]:
            named[DERIVED] = variant
    count = len(slots)
    most = count + len(op.spec.listed(named))
    if op.spec.keys and len(given) > most:
        raise ShapeError(f"{op.id} takes {most} shapes, got {len(given)}")
    given = (*given[:count], *op.spec.flat(given[count:], named))
    return Workload(op.id, given, kinds[: len(given)], attributes_of(named), threads)


def described(op: Operator, workload: Workload) -> str:
    """The workload as text, without attributes that have their default values."""
    usual = {p.name: p.default for p in op.spec.parameters} | {NUMBERS: ""}
    told = (name for name in (*op.spec.attributes, NUMBERS) if name in usual)
    named = {name: workload.named.get(name, usual[name]) for name in told}
    differing = {name: v for name, v in named.items() if v != usual[name]}
    return str(replace(workload, attributes=attributes_of(differing)))


def _deriving(
    op: Operator, named: Mapping[str, Any], kind: str, usual: Mapping[str, Any]
) -> tuple[str, tuple[object, ...]]:
    """The variant and scalars that `derive` gives, with `usual` as defaults."""
    assert op.derive is not None
    taken = {}
    for name in inspect.signature(op.derive).parameters:
        (p,) = (p for p in op.spec.parameters if p.name == name)
        if isinstance(p.kind, Arrays):
            taken[name] = np.empty(0, ir.DType(kind).numpy)
        else:
            taken[name] = named.get(name, usual.get(name, p.default))
    return op.derive(**taken)


def scalars(op: Operator, workload: Workload) -> Mapping[str, Any]:
    """Typical values of the scalars: defaults, and numbers in place of arrays."""
    kind = workload.dtypes[-1] if workload.dtypes else "f32"
    number = True if kind == "bool" else 3 if kind[0] in "iu" else 0.5
    numbers = str(workload.named.get(NUMBERS, "")).split()
    scalars = [p for p in op.spec.parameters if p.is_a("scalar")]
    shares = [p.name for p in op.spec.parameters if p.is_a("share")]
    return (
        _usual_derived(op, workload)
        | dict.fromkeys(numbers, number)
        | {p.name: 0.5 if p.needed else p.default for p in scalars}
        | {name: 0.5 for name in shares if workload.named[name]}
    )


def derived(
    op: Operator, workload: Workload, values: Mapping[str, Any]
) -> dict[str, object]:
    """The scalars that follow from parameters; none if they need another kernel."""
    variant = workload.named.get(DERIVED)
    if not variant:
        return {}
    found, numbers = _deriving(op, workload.named, workload.dtypes[0], values)
    made = derived_scalars(found).values() if found == variant else ()
    names = [name for scalars in made for name, _ in scalars]
    return dict(zip(names, numbers, strict=True)) if names else {}


def _usual_derived(op: Operator, workload: Workload) -> dict[str, object]:
    found = (derived(op, workload, usual) for usual in op.measured)
    return next(filter(None, found), {})


def _words(how: str) -> tuple[tuple[int, ...], str]:
    """The shape and type of a key's words."""
    found = impls.impl(how)
    return (found.key_words,), f"u{found.bits}"


def _usual_type(kind: Arrays, asked: str | tuple[str, ...] | None, same: bool) -> str:
    """The type of an array in a workload for which one type, or none, is given.

    `same` tells whether it has the shape of the array before it.
    """
    if kind.usual and not same:
        return kind.usual
    if isinstance(asked, str) and (not kind.dtypes or asked in kind.dtypes):
        return asked
    if 0 < len(kind.dtypes) < 3:
        return kind.dtypes[-1]  # the wider of two
    names = kind.dtypes or ("f32",)
    return next((name for name in ("f32", "i32") if name in names), names[-1])
