"""The operator library: each operator defined once, as loops.

    from tensorlang.ops import random, nn

Importing it compiles nothing and loads no compiler.
"""

from tensorlang.ops.definition import algorithm, operator
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.folds import fold
from tensorlang.ops.operator import Operator
from tensorlang.ops.pins import pin
from tensorlang.ops.registry import find, operators, select
from tensorlang.ops.updates import update

__all__ = [
    "Operator",
    "algorithm",
    "elementwise",
    "find",
    "fold",
    "operator",
    "operators",
    "pin",
    "select",
    "update",
]
