"""Operators whose defaults are beaten by known margins, or by nothing: y = 2 x.

Their time is proportional to the knob `rounds`. Those of `even` differ in what cannot
matter; the default of each is its first.
"""

from __future__ import annotations

from typing import Any

from tensorlang.ir.definitions.frontend import compute
from tensorlang.ir.text.parser import parse
from tensorlang.ops import operator
from tensorlang.ops.operator import Operator
from tensorlang.scheduling import Knobs, Schedule, schedule

ROUNDS = {
    "even": (30, 30, 30, 30),
    "best": (30, 31, 32, 36),
    "near": (32, 33, 31, 32),
    "behind": (36, 34, 30, 33),
    "far": (60, 50, 30, 40),
}


def _made(name: str, rounds: tuple[int, ...]) -> Operator:
    @operator(f"beatable.{name}", family=f"beatable_{name}")
    def double(x: Any) -> Any:
        n = int(x.shape[0])  # its schedules are written for one size
        return compute((n,), lambda i: x[i] * 2, name="y")

    @schedule(f"beatable_{name}")
    def choose(s: Schedule, knobs: Knobs) -> None:
        n = s.function.params[0].buffer.shape[0].value
        way = int(knobs.choice("way", range(len(rounds))))
        s.function = parse(f"""\
def {s.function.name}(x: u32[{n}], y: Out[u32[{n}]]):
    t = alloc(u32[{n + way}])
    for r in range({rounds[way]}):
        for i in range({n}):
            t[i] = x[i] + cast(u32, r)
    for i in range({n}):
        y[i] = x[i] * u32(2)
""")

    return double


even, best, near, behind, far = (_made(*each) for each in ROUNDS.items())
