"""Random numbers: reproducible streams, from keys that can be used only once.

    key = random.key(0)
    left, right = random.split(key)          # consumes key
    x = random.normal(left, (3, 4))
    keep = random.bernoulli(right, 0.9, (3, 4))

The default stream is bitwise equal to JAX's: Threefry2x32-20, partitionable layout.
"""

from tensorlang.ops.random.continuous import exponential as exponential
from tensorlang.ops.random.continuous import gumbel as gumbel
from tensorlang.ops.random.continuous import normal as normal
from tensorlang.ops.random.continuous import truncated_normal as truncated_normal
from tensorlang.ops.random.drawing import bernoulli as bernoulli
from tensorlang.ops.random.drawing import bits as bits
from tensorlang.ops.random.drawing import uniform as uniform
from tensorlang.ops.random.integers import categorical as categorical
from tensorlang.ops.random.integers import permutation as permutation
from tensorlang.ops.random.integers import randint as randint
from tensorlang.ops.random.keys import Key as Key
from tensorlang.ops.random.keys import clone as clone
from tensorlang.ops.random.keys import key as key
from tensorlang.ops.random.keys import key_data as key_data
from tensorlang.ops.random.keys import wrap_key_data as wrap_key_data
from tensorlang.ops.random.splitting import fold_in as fold_in
from tensorlang.ops.random.splitting import hash as hash
from tensorlang.ops.random.splitting import split as split
from tensorlang.ops.random.stateful import StatefulKey as StatefulKey
