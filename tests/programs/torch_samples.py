"""PyTorch's own samples for our operators: right, refused, without, wrong, untyped.

    python tests/programs/torch_samples.py               # all samples
    python tests/programs/torch_samples.py matmul -v     # some, and what is said
    python tests/programs/torch_samples.py --most 24     # of an operator and a type
    python tests/programs/torch_samples.py --table samples.md

The table is that of `tests/cpu/interop/test_torch_opinfo.py`. A sample is `refused`
where a `TensorlangError` is raised, and `without` where our operator lacks an option.
The exit status is 1 where one is wrong, or raises anything else. A page keeps its rows
of operators that were not counted this time.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

TABLE = Path(__file__).parents[1] / "cpu" / "interop" / "test_torch_opinfo.py"


def tested() -> ModuleType:
    """The test that has the table and compares."""
    spec = importlib.util.spec_from_file_location("torch_opinfo", TABLE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def samples(
    test: ModuleType, theirs: str, most: int | None = None
) -> Iterator[tuple[Any, Any]]:
    """The samples of an operator, at most so many of each type; always the same."""
    for info in test.infos()[theirs]:
        if info.variant_test_name == "triton_optimized":
            continue
        for dtype in filter(info.dtypes.__contains__, test.DTYPES):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = list(info.sample_inputs("cpu", dtype, requires_grad=False))
            yield from ((info, sample) for sample in test.drawn(made, most))


_HEAD = """# PyTorch's samples

Samples that PyTorch tests its operators with (`OpInfo`), of all types that an operator
has there; where they are thousands, some of each type (`--most`). A sample is refused
by a typed error, or takes an option that the operator lacks; results that differ, and
other errors, fail the count. `python tests/programs/torch_samples.py --table FILE`
wrote this page with PyTorch {version}: of {of} samples {right} are right,
{missing:.1%} refused or without.

| operator - PyTorch's | right | of | refused | without an option |
| --- | ---: | ---: | ---: | ---: |
"""
_COLUMNS = ("right", "of", "refused", "without")


def table(page: Path, counted: Mapping[str, Counter[str]], version: str) -> str:
    """The page in Markdown, with what was counted now in place of earlier rows."""
    rows: dict[str, list[int]] = {}
    for line in page.read_text().splitlines() if page.exists() else []:
        name, *cells = (cell.strip() for cell in line.strip("| ").split("|"))
        if len(cells) == len(_COLUMNS) and all(map(str.isdigit, cells)):
            rows[name] = [*map(int, cells)]
    for name, own in counted.items():
        whole = total(own)
        rows[name] = [whole if kind == "of" else own[kind] for kind in _COLUMNS]
    right, of, refused, without = map(sum, zip(*rows.values(), strict=True))
    missing = (refused + without) / max(of, 1)
    head = _HEAD.format(version=version, of=of, right=right, missing=missing)
    lines = (
        f"| {n} | {' | '.join(map(str, row))} |\n" for n, row in sorted(rows.items())
    )
    return head + "".join(lines)


def total(counts: Counter[str]) -> int:
    """The samples that are ours to compute."""
    return counts.total() - counts["PyTorch refuses"] - counts["another operator"]


def reason(kind: str, what: str) -> str:
    """Why a sample does not run, without its operator, sizes and types."""
    said = re.sub(r"\b[bfiu]+(?:\d+|ool)\b|-?\d[\d.]*(?:e[-+]\d+)?", "#", what)
    said = re.sub(r"\(?#(?:, ?#?)+\)?|\(#\)", "#", said)
    return f"{kind}: {said.partition(': ')[2] or said}"[:120]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names of operators")
    parser.add_argument("-v", action="store_true", help="say why samples are refused")
    parser.add_argument("--table", type=Path, help="write a page of the operators")
    parser.add_argument("--most", type=int, help="samples of an operator and a type")
    parser.add_argument("--dtypes", nargs="+", help="types of samples, as float32")
    given, test = parser.parse_args(), tested()
    if given.dtypes:
        test.DTYPES = [getattr(test.torch, name) for name in given.dtypes]
    reasons: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    counted: dict[str, Counter[str]] = {}
    for row, (op, theirs, names, change) in test.ROWS.items():
        if given.names and not any(name in row for name in given.names):
            continue
        own: Counter[str] = Counter()
        said: Counter[tuple[str, str]] = Counter()
        for info, sample in samples(test, theirs, given.most):
            with np.errstate(all="ignore"):
                kind, what = test.outcome(op, info, sample, names, change)
            own[kind] += 1
            said[kind, what[:300]] += given.v or kind in {"wrong", "untyped"}
            if kind in {"refused", "without"}:
                reasons[reason(kind, what)] += 1
        counts, counted[row] = counts + own, own
        if given.table:
            page = table(given.table, counted, test.torch.__version__)
            given.table.write_text(page)
        print(f"{row:50}", dict(own), flush=True)
        for (kind, what), count in said.most_common():
            if kind != "right" and count:
                print(f"    {count} {kind}: {what}")
    for why, count in reasons.most_common(None if given.v else 20):
        print(f"{count:6}  {why}")
    whole = total(counts)
    missing = counts["refused"] + counts["without"]
    print(f"{whole} samples:", dict(counts))
    print(f"{missing / max(whole, 1):.1%} are refused, or take an option we lack")
    return 1 if counts["wrong"] + counts["untyped"] else 0


if __name__ == "__main__":
    sys.exit(main())
