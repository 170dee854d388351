"""Networks of others, here and in onnxruntime: agree, refused, wrong, untyped.

    python tests/programs/onnx_models.py              # all networks, both exporters
    python tests/programs/onnx_models.py resnet -v    # some; and what is said
    python tests/programs/onnx_models.py --list

torchvision's and transformers' networks have random weights and small inputs; they are
exported once, by `torch.onnx.export` with and without `dynamo`, with fixed and dynamic
batch, into a folder that later runs read. Files that installed packages ship are run as
they are. A network agrees where all results have the type and the shape that
onnxruntime gives, and differ by at most 1e-4 of the largest magnitude. What cannot be
exported, or what onnxruntime does not run, does not count. The exit status is 1 where
one is wrong or raises anything but a `TensorlangError`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import exported_models
import numpy as np

LIMIT = 1e-4  # of the largest magnitude


@dataclass(frozen=True, slots=True)
class Found:
    """What became of one network: a word, what was said, seconds of the first call."""

    name: str
    word: str
    said: str = ""
    seconds: float = 0.0


def found(name: str, make: Callable[[], exported_models.Model]) -> Found:
    """Export a network, and run it here and in onnxruntime."""
    import onnxruntime

    from tensorlang.errors import TensorlangError
    from tensorlang.layers import Model

    try:
        path, inputs = make()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        wanted = onnxruntime.InferenceSession(path, options).run(None, inputs)
    except Exception as error:
        return Found(name, "not exported", f"{type(error).__name__}: {error}"[:300])
    start = time.perf_counter()
    try:
        given = Model.load(path, train=False)(*inputs.values())
    except TensorlangError as error:
        return Found(name, "refused", f"{type(error).__name__}: {error}")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{error!r:.300} at {place.filename}:{place.lineno}"
        return Found(name, "untyped", said)
    seconds = time.perf_counter() - start
    results = given if isinstance(given, tuple) else (given,)
    problems = list(_differences(results, wanted))
    return Found(name, "wrong" if problems else "agrees", "; ".join(problems), seconds)


def _differences(given: tuple[Any, ...], wanted: list[Any]) -> Iterator[str]:
    for at, (a, b) in enumerate(zip(given, map(np.asarray, wanted), strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            yield f"result {at} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
            continue
        exact = np.array_equal(a, b)
        if b.dtype.kind != "f" or exact or not b.size:
            if not exact and b.size:
                yield f"result {at} differs"
            continue
        wide = b.astype(np.float64)
        most = np.abs(a.astype(np.float64) - wide).max() / np.abs(wide).max()
        if not most <= LIMIT:
            yield f"result {at} differs by {most:.1e} of the largest magnitude"


def each_alone(
    cases: dict[str, Callable[[], exported_models.Model]], jobs: int
) -> Iterator[Found]:
    """Each network in a process of its own: a crash ends one."""
    context = multiprocessing.get_context("spawn")
    for name, make in cases.items() if jobs == 1 else ():
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            try:
                yield pool.submit(found, name, make).result()
            except BrokenProcessPool:
                yield Found(name, "untyped", "the process died")
    if jobs > 1:
        with ProcessPoolExecutor(jobs, context, max_tasks_per_child=1) as pool:
            yield from pool.map(found, cases, cases.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names of networks")
    parser.add_argument("--folder", type=Path, default=Path("build/models"))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--list", action="store_true", help="only list the networks")
    parser.add_argument("-v", action="store_true", help="say why they are refused")
    given, start = parser.parse_args(), time.time()
    cases = {
        name: partial(make, given.folder)
        for name, make in exported_models.cases().items()
        if not given.names or any(part in name for part in given.names)
    }
    if given.list:
        print(*cases, sep="\n")
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    words: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for each in each_alone(cases, given.jobs):
        words[each.word] += 1
        if each.word == "refused":
            reasons[each.said.partition(": ")[2].partition(": ")[2][:160]] += 1
        if given.v or each.word in {"wrong", "untyped"}:
            print(
                f"{each.word} {each.name} ({each.seconds:.1f} s) {each.said}",
                flush=True,
            )
    for reason, count in reasons.most_common():
        print(f"{count:4}  {reason}")
    counted = sum(words.values()) - words["not exported"]
    print(f"{len(cases)} networks in {time.time() - start:.0f} s: {dict(words)}")
    print(f"{words['agrees']} of {counted} that onnxruntime runs agree")
    return 1 if words["wrong"] + words["untyped"] else 0


if __name__ == "__main__":
    sys.exit(main())
