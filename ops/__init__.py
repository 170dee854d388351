"""The operator library: each operator defined once, as loops.

    from tensorlang.ops import random, nn

Importing it compiles nothing and loads no compiler.
"""

from tensorlang.ops.calls.updates import update
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.folds import fold
from tensorlang.ops.operator import Operator
from tensorlang.ops.pins import pin
from tensorlang.ops.registry import find, operators, select
from tensorlang.ops.spec.definition import algorithm, operator

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
