"""PyTorch's own samples for our operators: right, refused, without, wrong, untyped.

    python tests/programs/torch_samples.py               # all samples
    python tests/programs/torch_samples.py matmul -v     # some, and what is said

The table is that of `tests/cpu/interop/test_torch_opinfo.py`. A sample is `refused`
where a `TensorlangError` is raised, and `without` where our operator lacks an option.
The exit status is 1 where one is wrong, or raises anything else.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

TABLE = Path(__file__).parents[1] / "cpu" / "interop" / "test_torch_opinfo.py"


def table() -> ModuleType:
    """The test that has the table and compares."""
    spec = importlib.util.spec_from_file_location("torch_opinfo", TABLE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def samples(test: ModuleType, theirs: str) -> Iterator[tuple[Any, Any]]:
    """The samples of an operator, of each type that PyTorch has for it."""
    for info in test.INFOS[theirs]:
        if info.variant_test_name == "triton_optimized":
            continue
        for dtype in filter(info.dtypes.__contains__, test.DTYPES):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = list(info.sample_inputs("cpu", dtype, requires_grad=False))
            yield from ((info, sample) for sample in made)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names of operators")
    parser.add_argument("-v", action="store_true", help="say why samples are refused")
    given, test = parser.parse_args(), table()
    counts: Counter[str] = Counter()
    for row, (op, theirs, names, change) in test.ROWS.items():
        if given.names and not any(name in row for name in given.names):
            continue
        own: Counter[str] = Counter()
        said: Counter[tuple[str, str]] = Counter()
        for info, sample in samples(test, theirs):
            with np.errstate(all="ignore"):
                kind, what = test.outcome(op, info, sample, names, change)
            own[kind] += 1
            said[kind, what[:300]] += given.v or kind in {"wrong", "untyped"}
        counts += own
        print(f"{row:50}", dict(own), flush=True)
        for (kind, what), count in said.most_common():
            if kind != "right" and count:
                print(f"    {count} {kind}: {what}")
    whole = counts.total() - counts["PyTorch refuses"]
    missing = counts["refused"] + counts["without"]
    print(f"{whole} samples:", dict(counts))
    print(f"{missing / max(whole, 1):.1%} are refused, or take an option we lack")
    return 1 if counts["wrong"] + counts["untyped"] else 0


if __name__ == "__main__":
    sys.exit(main())
