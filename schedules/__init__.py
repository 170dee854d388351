"""Search spaces: the schedules of each family of operators.

A schedule is a function with knobs. Importing this package registers them all in the
table `SCHEDULES`, which `schedules_for` reads.
"""

from tensorlang.schedules import attention as attention
from tensorlang.schedules import broadcast_gradients as broadcast_gradients
from tensorlang.schedules import embedding as embedding
from tensorlang.schedules import generic as generic
from tensorlang.schedules import pool as pool
from tensorlang.schedules import pool_gradients as pool_gradients
from tensorlang.schedules import random as random
from tensorlang.schedules import recurrent as recurrent
from tensorlang.schedules import rows as rows
from tensorlang.schedules import scans as scans
from tensorlang.schedules import simt as simt
from tensorlang.schedules import slices as slices
from tensorlang.schedules import sorting as sorting
from tensorlang.schedules import transpose as transpose
from tensorlang.schedules.contraction import nibbles as nibbles
from tensorlang.schedules.convolution import choice as choice
from tensorlang.schedules.convolution import winograd as winograd
from tensorlang.scheduling.registry import SCHEDULES as SCHEDULES
from tensorlang.scheduling.registry import schedules_for as schedules_for
