"""Readers and writers of operators."""

from tensorlang.onnx.operators import (
    activations,
    attention,
    constants,
    data_movement,
    elementwise,
    forms,
    gathering,
    images,
    norms,
    products,
    recurrent,
    reductions,
    resizing,
    shapes,
    stored_functions,
)

__all__ = [
    "activations",
    "attention",
    "constants",
    "data_movement",
    "elementwise",
    "forms",
    "gathering",
    "images",
    "norms",
    "products",
    "recurrent",
    "reductions",
    "resizing",
    "shapes",
    "stored_functions",
]
