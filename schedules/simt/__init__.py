"""Search spaces for GPU threads: how each family's loop nests are bound."""

from tensorlang.schedules.simt import attention as attention
from tensorlang.schedules.simt import bound as bound
from tensorlang.schedules.simt import generic as generic
from tensorlang.schedules.simt import pool_gradients as pool_gradients
from tensorlang.schedules.simt import random as random
from tensorlang.schedules.simt import recurrent as recurrent
from tensorlang.schedules.simt import rows as rows
