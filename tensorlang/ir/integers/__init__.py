"""Reasoning about integers: index arithmetic, extents and conditions on them.

Every expression of i64 has one normal form, a polynomial. The questions that passes and
schedules ask, and who answers them:

| question | answered by |
| --- | --- |
| the normal form; are two equal; a loop's coefficient | `polynomials.poly` |
| the same, with multiples divided out of `//` and `%` | `indices.linear` |
| the same, with `//` and `%` resolved by the extents of loops | `indices.spread` |
| does a sum wrap, what are its bounds, given ranges and facts | `known.Known` |
| bounds of an operation from those of its operands | `intervals`, `node_intervals` |
| does a condition hold, what follows from it | `bounds.prove`, `bounds.assume` |
| a simpler `//` or `%` | `division` |
| can two iterations meet in one element | `digits` |
| how large can a size be | `size_bounds` |
"""
