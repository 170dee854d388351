"""Random numbers: reproducible streams, from keys that can be used only once.

    key = random.key(0)
    left, right = random.split(key)          # consumes key
    x = random.normal(left, (3, 4))
    keep = random.bernoulli(right, 0.9, (3, 4))

The default stream is bitwise equal to JAX's: Threefry2x32-20, partitionable layout.
"""

from tensorlang.ops.random.continuous import (
    exponential,
    gumbel,
    normal,
    truncated_normal,
)
from tensorlang.ops.random.drawing import bernoulli, bits, uniform
from tensorlang.ops.random.integers import categorical, permutation, randint
from tensorlang.ops.random.keys import Key, clone, key, key_data, wrap_key_data
from tensorlang.ops.random.splitting import fold_in, hash, split
from tensorlang.ops.random.stateful import StatefulKey

__all__ = [
    "Key",
    "StatefulKey",
    "bernoulli",
    "bits",
    "categorical",
    "clone",
    "exponential",
    "fold_in",
    "gumbel",
    "hash",
    "key",
    "key_data",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
    "wrap_key_data",
]
