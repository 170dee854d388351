"""ONNX's own backend suite on our operators: passed, refused, wrong, untyped.

    python tests/programs/onnx_suite.py             # all 2,024 cases, as they are
    python tests/programs/onnx_suite.py --frozen    # small inputs of integers constant
    python tests/programs/onnx_suite.py relu -v     # some cases, and what is said
    python tests/programs/onnx_suite.py --table docs/reference/onnx_operators.md

A case passes where all results have the type, the shape and the numbers that the suite
has, within its tolerances (of bfloat16 two units in the last place, as in its runner);
it is refused where a `TensorlangError` is raised. The exit status is 1 where one is
wrong, or raises anything else.
"""

from __future__ import annotations

import argparse
import pkgutil
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

SLOW = ("averagepool", "lppool", "maxpool", "attention", "image_decoder", "affinegrid")
STORED = ("simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True, slots=True)
class Case:
    """A case of the suite: a model, and what it gives for some inputs."""

    name: str
    model: bytes
    sets: tuple[tuple[list[Any], list[Any]], ...]
    rtol: float
    atol: float


def cases(*, slow: bool = True) -> list[Case]:
    """The cases of single operators, and those of PyTorch's that the package holds.

    Args:
        slow: With operators whose cases take seconds to make.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node = import_module("onnx.backend.test.case.node")
        for module in pkgutil.walk_packages(node.__path__, f"{node.__name__}."):
            if slow or not module.name.endswith(SLOW):
                import_module(module.name)
    made = [
        Case(c.name, c.model.SerializeToString(), tuple(c.data_sets), c.rtol, c.atol)
        for c in node._NodeTestCases
    ]
    return made + list(_stored())


def _stored() -> Iterator[Case]:
    from onnx.backend.test.loader import load_model_tests

    for kind in STORED:
        for found in load_model_tests(kind=kind):
            folder = Path(found.model_dir)
            sets = [
                ([*_tensors(each, "input")], [*_tensors(each, "output")])
                for each in sorted(folder.glob("test_data_set_*"))
            ]
            model = (folder / "model.onnx").read_bytes()
            yield Case(found.name, model, tuple(sets), found.rtol, found.atol)


def _tensors(folder: Path, kind: str) -> Iterator[Any]:
    """The tensors of a stored case; None for a sequence."""
    for n in range(len(list(folder.glob(f"{kind}_*.pb")))):
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString((folder / f"{kind}_{n}.pb").read_bytes())
            yield onnx.numpy_helper.to_array(tensor)
        except Exception:
            yield None


def frozen(model: Any, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The model with small inputs of integers as constants: shapes and axes, say."""
    made, left = onnx.ModelProto(), []
    made.CopyFrom(model)
    made.ir_version = max(made.ir_version, 4)
    for value, array in zip(model.graph.input, inputs, strict=False):
        small = isinstance(array, np.ndarray) and array.ndim < 2 and array.size <= 16
        if small and array.dtype.kind in "iub":
            constant = onnx.numpy_helper.from_array(array, value.name)
            made.graph.initializer.append(constant)
            made.graph.input.remove(value)
        else:
            left.append(array)
    return made, left


def outcome(case: Case, *, freeze: bool = False) -> tuple[str, str]:
    """One of `passed`, `refused`, `wrong` and `untyped`; and what was said."""
    from tensorlang.errors import TensorlangError

    try:
        for inputs, wanted in case.sets:
            model = onnx.load_from_string(case.model)
            if freeze:
                model, inputs = frozen(model, inputs)  # noqa: PLW2901 - those left
            found = _run(model, [_array(each) for each in inputs])
            for problem in _differences(case, found, map(_array, wanted)):
                return "wrong", problem
    except TensorlangError as error:
        return "refused", f"{type(error).__name__}: {error}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "untyped", f"{error!r:.200} at {place.filename}:{place.lineno}"
    return "passed", ""


def _array(given: Any) -> Any:
    """An array of the suite, which has some as tensors of files."""
    tensor = isinstance(given, onnx.TensorProto)
    return onnx.numpy_helper.to_array(given) if tensor else given


def _run(model: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    from tensorlang.layers import Model

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(model.SerializeToString())
        found = Model.load(path, train=False)(*inputs)
    return found if isinstance(found, tuple) else (found,)


def _differences(
    case: Case, found: Sequence[Any], given: Iterable[Any]
) -> Iterator[str]:
    wanted = [*given]
    if len(found) != len(wanted):
        yield f"{len(found)} results, not {len(wanted)}"
        return
    for a, b in zip(found, map(np.asarray, wanted), strict=True):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            yield f"{a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        elif not np.allclose(
            *(x.astype(np.float64) for x in (a, b)),
            max(case.rtol, 2**-6) if b.dtype.name == "bfloat16" else case.rtol,
            case.atol,
            equal_nan=True,
        ):
            yield f"{a.ravel()[:5]} ..., not {b.ravel()[:5]} ..."


_HEAD = """# ONNX operators

Cases of ONNX's own backend suite that pass as they are, by operator, and what is said
where one is refused. `python tests/programs/onnx_suite.py --table FILE` wrote this page
with onnx {version}: {passed} of {all} cases pass.

| operator | pass | of | refused |
| --- | ---: | ---: | --- |
"""
_PLACE = re.compile(r"^\w+Error: |\S*/m\.onnx(: | has )|\S+\.py:\d+: ")


def table(by: Mapping[str, Mapping[str, int]], reasons: Mapping[str, str]) -> str:
    """The page of operators in Markdown."""
    rows = [
        f"| {name} | {words.get('passed', 0)} | {sum(words.values())} | "
        f"{_PLACE.sub('', reasons.get(name, '')).replace('|', ' ')} |"
        for name, words in sorted(by.items())
    ]
    counts = sum((Counter(words) for words in by.values()), Counter())
    head = _HEAD.format(
        version=onnx.__version__, passed=counts["passed"], all=counts.total()
    )
    return head + "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names of cases")
    parser.add_argument("--frozen", action="store_true", help="freeze small integers")
    parser.add_argument("-v", action="store_true", help="say why cases are refused")
    parser.add_argument("--table", type=Path, help="write a page of the operators")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given, start = parser.parse_args(), time.time()
    picked = [
        case
        for case in cases()
        if not given.names or any(name in case.name for name in given.names)
    ]
    counts: Counter[str] = Counter()
    by: defaultdict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, str] = {}
    with ProcessPoolExecutor(given.jobs) as pool:
        found = pool.map(partial(outcome, freeze=given.frozen), picked, chunksize=16)
        for case, (word, said) in zip(picked, found, strict=True):
            counts[word] += 1
            name = onnx.load_from_string(case.model).graph.node[0].op_type
            by[name][word] += 1
            if word != "passed":
                named = said if word == "refused" else f"{word} {case.name}: {said}"
                reasons.setdefault(name, named)
            if given.v or word in {"wrong", "untyped"}:
                print(word, case.name, said)
    if given.table:
        given.table.write_text(table(by, reasons))
    whole = sum(set(words) == {"passed"} for words in by.values())
    print(f"{len(picked)} cases in {time.time() - start:.0f} s:", dict(counts))
    print(f"{whole} of {len(by)} operators pass all of theirs")
    return 1 if counts["wrong"] + counts["untyped"] else 0


if __name__ == "__main__":
    sys.exit(main())
