"""`python -m benchmarks.gpu.builds`: build the works' kernels on all cores.

With `--target cuda:sm_90a` it needs no GPU: machine code is cached by its source, so
that a cache folder filled here spares a machine with such a GPU the compiling.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context

import numpy as np

from benchmarks.gpu.measure import WORKS
from benchmarks.gpu.works import Stage
from tensorlang import targets
from tensorlang.cli import options
from tensorlang.errors import TensorlangError
from tensorlang.ir import as_dtype
from tensorlang.machine.gpus import gpu_of
from tensorlang.targets import Target

_BUILT = ": built"
Asked = tuple[str, ...]  # an operator and options, as `tlang tune` takes them


def asked(stage: Stage) -> Iterator[Asked]:
    """What the works compute, each once."""
    every = (tuple(each) for work in WORKS.values() for each in work.tuned(stage))
    yield from dict.fromkeys(every)


def whole(target: str) -> Target:
    """The target; an architecture has the usual number of multiprocessors."""
    found = targets.get(target)
    usual = gpu_of(found)
    if found.index >= 0 or usual is None:
        return found
    return replace(found, threads=usual.processors)


def build(one: Asked, target: str) -> None:
    """Build the kernel that a search starts from, and that of a first call.

    Raises:
        TensorlangError: the first cannot be built.
    """
    name, *rest = one
    given = list(zip(rest[::2], rest[1::2], strict=True))
    known = dict(given)
    attributes = [value for flag, value in given if flag == "--attr"]
    op, device = options.operator(name), whole(target)
    workload = options.workload(
        op, known.get("--shape"), known.get("--dtype"), attributes
    )
    op.build(workload, device)
    with suppress(TensorlangError, TypeError):  # not called with these arrays alone
        arrays = [
            np.empty(shape, as_dtype(dtype).numpy)
            for shape, dtype in zip(workload.shapes, workload.dtypes, strict=False)
        ]
        op.kernel(*arrays, **options.attributes(attributes), target=device)


def all_built(every: Sequence[Asked], target: str) -> Iterator[str]:
    """A line for each that is built, as they end."""
    count = min(os.cpu_count() or 1, len(every))
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        building = {pool.submit(build, one, target): one for one in every}
        for done in as_completed(building):
            problem = done.exception()
            said = f": {type(problem).__name__}: {problem}" if problem else _BUILT
            yield f"{' '.join(building[done])}{said}"


def main() -> None:
    """Build them all; exit with 1 if one cannot be built."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.builds")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--scale", type=int, default=1)
    given = parser.parse_args()
    stage = Stage(given.target, given.scale)
    failed = 0
    for line in all_built(list(asked(stage)), given.target):
        print(line, flush=True)
        failed += not line.endswith(_BUILT)
    if failed:
        sys.exit(f"{failed} kernels cannot be built")


if __name__ == "__main__":
    main()
