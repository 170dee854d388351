"""Division by a loop-invariant integer: a multiplication and shifts."""

from __future__ import annotations


def by(divisor: int, bits: int) -> tuple[int, int, int]:
    """The magic numbers for exact division of unsigned `bits`-bit n by `divisor`.

    Granlund and Montgomery, "Division by invariant integers using multiplication",
    1994, figure 4.1: with `high = mulhi(reciprocal, n)`, the quotient is
    `(high + (n - high >> first)) >> then`.

    Returns:
        reciprocal, first, then.
    """
    length = (divisor - 1).bit_length()
    reciprocal = ((1 << bits) * ((1 << length) - divisor) // divisor) + 1
    return reciprocal, min(length, 1), max(length - 1, 0)
