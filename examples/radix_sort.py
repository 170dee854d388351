"""A stable radix sort of u32 keys, written as IR text: four passes of eight bits.

    python examples/radix_sort.py

Each pass splits the keys into chunks. Every chunk counts its digits, a scan turns the
counts into offsets (by digit, then by chunk, which makes the sort stable), and every
chunk scatters its keys. Destinations depend on data, so independence cannot be proved:
the chunk axis is declared `disjoint`, which the interpreter checks, and may then run in
parallel; within a chunk the order matters, and that axis is `ordered`.

Zagha and Blelloch, "Radix sort for vector multiprocessors", 1991.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tensorlang import build
from tensorlang.ir import Function, parse
from tensorlang.scheduling import Schedule

_HEAD = """
def radix_sort(keys: u32[n], sorted_keys: Out[u32[n]], order: Out[i64[n]], *, n: i64):
    length: i64 = (n + {last}) // {chunks}
"""
_TEMPORARIES = """
    {keys} = alloc(u32[n])
    {order} = alloc(i64[n])
"""
_ROUND = """
    count_{p} = alloc(i64[{chunks}, 256])
    for c_{p} in range({chunks}):
        for d_{p} in range(256):
            with block("clear_{p}", vc=spatial({chunks}, c_{p}),
                       vd=spatial(256, d_{p})):
                count_{p}[vc, vd] = 0
    for cc_{p} in range({chunks}):
        for e_{p} in range(length):
            with block("count_{p}", vc=disjoint({chunks}, cc_{p}),
                       ve=ordered(length, e_{p}), where=cc_{p} * length + e_{p} < n):
                key: u32 = {keys}[vc * length + ve]
                digit: i64 = cast(i64, key >> u32({shift}) & u32(255))
                count_{p}[vc, digit] = count_{p}[vc, digit] + 1
    next_{p} = alloc(i64[1])
    next_{p}[0] = 0
    for sd_{p} in range(256):
        for sc_{p} in range({chunks}):
            with block("scan_{p}", vd=ordered(256, sd_{p}),
                       vc=ordered({chunks}, sc_{p})):
                here: i64 = count_{p}[vc, vd]
                count_{p}[vc, vd] = next_{p}[0]
                next_{p}[0] = next_{p}[0] + here
    for mc_{p} in range({chunks}):
        for me_{p} in range(length):
            with block("move_{p}", vc=disjoint({chunks}, mc_{p}),
                       ve=ordered(length, me_{p}), where=mc_{p} * length + me_{p} < n):
                at: i64 = vc * length + ve
                key: u32 = {keys}[at]
                digit: i64 = cast(i64, key >> u32({shift}) & u32(255))
                place: i64 = count_{p}[vc, digit]
                count_{p}[vc, digit] = place + 1
                {to_keys}[place] = key
                {to_order}[place] = {index}
"""


def radix_sort(chunks: int = 16) -> Function:
    """sorted_keys[n] and the stable order[n] of keys[n]; n is a symbolic size."""
    between = [("keys_1", "order_1"), ("keys_2", "order_2"), ("keys_3", "order_3")]
    stations = [("keys", ""), *between, ("sorted_keys", "order")]
    text = _HEAD.format(last=chunks - 1, chunks=chunks)
    for keys, order in between:
        text += _TEMPORARIES.format(keys=keys, order=order)
    for p, (source, target) in enumerate(pairwise(stations)):
        text += _ROUND.format(
            p=p,
            chunks=chunks,
            shift=8 * p,
            keys=source[0],
            index=f"{source[1]}[at]" if source[1] else "at",
            to_keys=target[0],
            to_order=target[1],
        )
    return parse(text)


def parallel(func: Function) -> Schedule:
    """Parallelise the chunk loops of every pass."""
    s = Schedule(func)
    for p in range(4):
        for block in ("clear", "count", "move"):
            s.parallel(s.loops(f"{block}_{p}")[0])
    return s


def main() -> None:
    """Sort a million keys with many repeats, and compare with NumPy."""
    kernel = build(parallel(radix_sort()).function)
    keys = np.random.default_rng(0).integers(0, 1 << 16, 1_000_003, dtype=np.uint32)
    out, order = np.empty_like(keys), np.empty(len(keys), np.int64)
    kernel(keys, out, order)
    right = (order == np.argsort(keys, kind="stable")).all()
    print(f"{len(keys)} keys, equal ones in their old order: {bool(right)}")


if __name__ == "__main__":
    main()
