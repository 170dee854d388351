"""Optimizers: a single in-place pass over parameters and optimizer state.

Each array argument also takes a list; all must then be lists of one length. They are
updated in one launch, and nothing is written before all arrays have been checked. State
starts as zeros. f16 and bf16 parameters may have f32 gradients and state. Arithmetic is
in f32, or in f64 for f64 arrays.
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
