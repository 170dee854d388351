"""Optimizers: one pass over parameters and their state, in place.

Where an array is asked for, a list of them may be given, and a list for each other:
several sets go in one launch, and none is touched before all fit. State starts as
zeros. Parameters in f16 or bf16 may have gradients and state in f32; what is computed
is computed in f32 (f64 beside f64).
"""

from tensorlang.ops.optim import schedules
from tensorlang.ops.optim.clipping import clip_by_global_norm, scale, sum_of_squares
from tensorlang.ops.optim.descent import sgd
from tensorlang.ops.optim.moments import adam, adamax, adamw
from tensorlang.ops.optim.squares import adagrad, rmsprop

__all__ = [
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "clip_by_global_norm",
    "rmsprop",
    "scale",
    "schedules",
    "sgd",
    "sum_of_squares",
]
