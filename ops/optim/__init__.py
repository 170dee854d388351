"""Optimizers: a single in-place pass over parameters and optimizer state.

Each array argument also takes a list; all must then be lists of one length. They are
updated in one launch, and nothing is written before all arrays have been checked. State
starts as zeros. f16 and bf16 parameters may have f32 gradients and state. Arithmetic is
in f32, or in f64 for f64 arrays.
"""

from tensorlang.ops.optim import schedules as schedules
from tensorlang.ops.optim.clipping import clip_by_global_norm as clip_by_global_norm
from tensorlang.ops.optim.clipping import scale as scale
from tensorlang.ops.optim.clipping import sum_of_squares as sum_of_squares
from tensorlang.ops.optim.descent import sgd as sgd
from tensorlang.ops.optim.moments import adam as adam
from tensorlang.ops.optim.moments import adamax as adamax
from tensorlang.ops.optim.moments import adamw as adamw
from tensorlang.ops.optim.squares import adagrad as adagrad
from tensorlang.ops.optim.squares import rmsprop as rmsprop
