"""Operators of ONNX and ours, both ways: how each is read and how each is written."""

from tensorlang.onnx.operators import (
    activations,
    constants,
    elementwise,
    forms,
    images,
    moving,
    norms,
    own,
    products,
    reductions,
    shapes,
)

__all__ = [
    "activations",
    "constants",
    "elementwise",
    "forms",
    "images",
    "moving",
    "norms",
    "own",
    "products",
    "reductions",
    "shapes",
]
