"""The subscripts of `einsum`: labels of dimensions, and their sizes.

A dimension that `...` stands for is labelled by its distance from the last of these, as
they broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from tensorlang import ir
from tensorlang.errors import ArgumentError

_DOTS: Final = "..."
Labels: TypeAlias = tuple[str, ...]  # of the dimensions of an array
Sizes: TypeAlias = dict[str, Any]


def parsed(subscripts: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of the operands, of these numbers of dimensions, and of the result.

    Raises:
        ArgumentError: the subscripts are malformed, or do not fit the operands.
    """
    given, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = given.split(",")

    def need(condition: object, problem: str) -> None:
        what = f"subscripts {subscripts!r}: {problem}"
        ir.require(condition, what, ArgumentError)

    for sign in "".join(text.replace(_DOTS, "", 1) for text in (*terms, result)):
        legal = sign.isascii() and sign.isalpha()
        need(legal, f"{sign!r} is no letter; operands are letters and one '...'")
    need(
        len(terms) == len(ranks),
        f"they name {len(terms)} operands, and the call has {len(ranks)}; einsum takes "
        "one or two, so contract more in pairs",
    )
    extra = []
    for text, rank in zip(terms, ranks, strict=True):
        extra.append(rank - len(text.replace(_DOTS, "")))
        fits = extra[-1] >= 0 if _DOTS in text else extra[-1] == 0
        need(fits, f"{text!r} does not fit an array of {rank} dimensions")
    if not arrow:
        once = (sign for sign in given if sign.isalpha() and given.count(sign) == 1)
        result = "".join((_DOTS, *sorted(once)))
    for letter in result.replace(_DOTS, ""):
        need(letter in given, f"the result has {letter!r}, which no operand has")
        need(result.count(letter) == 1, f"the result has {letter!r} twice")
    kept = _DOTS in result or not any(extra)
    need(kept, "the operands have '...', and the result needs it, too")
    labels = [_labels(*each) for each in zip(terms, extra, strict=True)]
    return labels, _labels(result, max(extra))


def _labels(text: str, extra: int) -> Labels:
    """The labels of a term whose `...` stands for so many dimensions."""
    before, dots, after = text.partition(_DOTS)
    numbers = (f"{_DOTS}[{n}]" for n in range(-extra, 0)) if dots else ()
    return (*before, *numbers, *after)


def sizes_of(
    subscripts: str, terms: Sequence[Labels], arrays: Sequence[ir.Tensor]
) -> Sizes:
    """The size of each label; ShapeError if two differ, and neither broadcasts."""
    sizes: Sizes = {}
    for term, array in zip(terms, arrays, strict=True):
        own: Sizes = {}
        for label, size in zip(term, array.shape, strict=True):
            same, known = own.setdefault(label, size), sizes.get(label, size)
            ir.require(
                same == size and (1 in (known, size) or known == size),
                f"subscripts {subscripts!r}: {label!r} has sizes "
                f"{known if same == size else same} and {size}",
            )
            sizes[label] = size if known == 1 else known
    return sizes
