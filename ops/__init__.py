"""The operator library: each operator defined once, as loops.

    from tensorlang.ops import random, nn

Importing it compiles nothing and loads no compiler.
"""
