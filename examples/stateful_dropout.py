"""Dropout written with state, and the pure programs that a pass makes of it.

    python examples/stateful_dropout.py

A front end keeps the generator's key in a place that functions read and write. The pass
`graph.thread` takes the place away: what it held is given to each function and given
back, through calls, branches and loops. Each program is printed before and after.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import graph
from tensorlang.graph import KeySpec, TensorSpec
from tensorlang.ops import math, nn, random

STATE = graph.ref(KeySpec(), "state")


def dropout(x: Any, rate: float) -> Any:
    """Dropout as a stateful front end has it."""
    y, after = nn.dropout_train(x, graph.read(STATE), rate)
    graph.write(STATE, after)
    return y


@graph.function
def func1(x: Any) -> Any:
    """One dropout."""
    return dropout(x, 0.7)


@graph.function
def long_func(x: Any) -> Any:
    """Two in a row: the second reads what the first wrote."""
    return dropout(dropout(x, 0.7), 0.1)


@graph.function
def func2(x: Any, y: Any) -> Any:
    """One branch draws, the other does not."""
    return graph.cond(x, lambda: math.add(x, y), lambda: func1(y))


@graph.function
def looped(x: Any) -> Any:
    """A loop that draws at each turn."""
    return graph.loop(3, lambda _, c: func1(c), x)


def main() -> None:
    """Print all of them, and run the last."""
    one = TensorSpec((1,))
    programs = [func1.graph(one), long_func.graph(one), func2.graph(one, one)]
    for program in [*programs, looped.graph(TensorSpec(("n",)))]:
        print(f"{program}\n\n  becomes\n\n{graph.thread(program)}\n\n{'-' * 72}\n")
    pure = graph.thread(looped.graph(TensorSpec(("n",))))
    x = np.ones(1000, np.float32)
    first, after = pure(x, random.key(0))
    again, _ = pure(x, random.key(0))
    other, _ = pure(x, after)
    print("same state, same output:", np.array_equal(first, again))
    print("next state, another output:", not np.array_equal(first, other))


if __name__ == "__main__":
    main()
