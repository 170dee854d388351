"""Stateful dropout, and the pure programs that a pass makes of it.

    python examples/stateful_dropout.py [FOLDER]

The generator's key is held in a reference that functions read and write. The pass
`graph.thread` eliminates it: its content is passed to and returned by each function,
through calls, branches and loops. Each program is printed before and after; with a
folder, the masks are plotted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang import graph
from tensorlang.graph import KeySpec, TensorSpec
from tensorlang.ops import math, nn, random

STATE = graph.ref(KeySpec(), "state")


def dropout(x: Any, rate: float) -> Any:
    """Dropout as in a stateful front end."""
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
    """A loop that draws in each turn."""
    return graph.loop(3, lambda _, c: func1(c), x)


def main(folder: str | Path | None = None) -> None:
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
    if folder is not None:
        draw(folder)


def draw(folder: str | Path, calls: int = 24, width: int = 96) -> None:
    """Plot the masks of successive calls of func1, and of the first state again."""
    import plots  # noqa: PLC0415 - in this folder

    pure = graph.thread(func1.graph(TensorSpec((width,))))
    x, state, kept = np.ones(width, np.float32), random.key(0), []
    for _ in range(calls):
        y, state = pure(x, state)
        kept.append(y != 0)
    kept.append(pure(x, random.key(0))[0] != 0)
    share = np.mean(kept[:-1])

    def on(axes: Any) -> None:
        axes.imshow(np.array(kept), cmap="Greys", aspect="auto", interpolation="none")
        axes.axhline(calls - 0.5, color="tab:red", lw=1)
        axes.set(
            xlabel="element", ylabel="call", title=f"rate 0.7: {100 * share:.1f} % kept"
        )
        axes.text(width, calls, " first state", va="center", color="tab:red")

    plots.figure(folder, "masks", on)


if __name__ == "__main__":
    main(*sys.argv[1:2])
