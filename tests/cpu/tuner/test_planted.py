"""Fast kernels that are wrong somewhere are never recorded; the report names them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorlang.cli.app import app
from tensorlang.ir import parse
from tensorlang.ops import find, operator
from tensorlang.runtime import build
from tensorlang.tuner import Report, tune
from tensorlang.tuner.correctness.gate import Gate, Wrong

DOUBLE = '''
"""Twice a number: fast and right by one way, fast and wrong by all others."""

from tensorlang.ir import compute, parse
from tensorlang.ops import operator
from tensorlang.scheduling import schedule

LOOP = """
def double(x: {dtype}[{{n}}], y: Out[{dtype}[{{n}}]]):
    for i in range({{n}}):
        y[i] = {{value}}
"""
SLOW = """
def double(x: {dtype}[{{n}}], y: Out[{dtype}[{{n}}]]):
    t = alloc({dtype}[{{n}}])
    for r in range(30):
        for i in range({{n}}):
            t[i] = x[i] + {{value}}
    for i in range({{n}}):
        y[i] = {{value}}
"""
WAYS = {ways!r}


@operator("{name}.double", family="{name}")
def double(x):
    n = int(x.shape[0])  # its schedules are written for one size
    return compute((n,), lambda i: x[i] + x[i], name="y")


@schedule("{name}")
def way_of_double(s, knobs):
    n = s.function.params[0].buffer.shape[0].value
    way = knobs.choice("way", ["slow", "right", *WAYS])
    value = WAYS.get(way, "x[i] + x[i]").format(n=n)
    s.function = parse((SLOW if way == "slow" else LOOP).format(n=n, value=value))
'''
# wrong at a value that is written in the kernel, at one that is not, and at a place
FLOATS = {
    "at_zero": "select(x[i] == 0.0, 1.0, x[i] + x[i])",
    "above_100": "select(x[i] > 100.0, 0.0, x[i] + x[i])",
    "at_infinity": "select(x[i] == f32('inf'), 0.0, x[i] + x[i])",
    "at_a_nan": "select(bitcast(u32, x[i]) == u32(2143294004), 0.0, x[i] + x[i])",
    "at_three_quarters": "select(x[i] * 4.0 == 3.0, 0.0, x[i] + x[i])",
    "at_other_infinities": "select(x[i] - x[i] == 0.0, x[i] + x[i], f32('inf'))",
    "at_minus_zero": "x[i] + (x[i] + 0.0)",
    "subnormals": "x[i] * 2.9802322387695312e-08 * 67108864.0",
    "the_largest": "x[i] * 67108864.0 * 2.9802322387695312e-08",
    "after_65536_at_zero": "select((i > 65536) & (x[i] == 0.0), 1.0, x[i] + x[i])",
    "in_lane_5_at_nan": "select((i % 16 == 5) & (x[i] != x[i]), 1.0, x[i] + x[i])",
    "in_the_last_row": "select(i >= {n} - {n} % 8, 0.0, x[i] + x[i])",
    "the_last_at_infinity": "select((i == {n} - 1) & (x[i] > 1e38), 0.0, x[i] + x[i])",
}
WHOLE = {
    "at_zero": "select(x[i] == i32(0), i32(1), x[i] + x[i])",
    "at_one_number": "select(x[i] == i32(123456), i32(0), x[i] + x[i])",
    "at_a_product": "select((x[i] ^ i32(5)) * i32(3) == i32(306), i32(0), x[i] + x[i])",
    "at_the_least": "select(x[i] < i32(-2147483647), i32(1), x[i] + x[i])",
    "at_its_own_index": "select(cast(i64, x[i]) == i, i32(-1), x[i] + x[i])",
    "saturating": "cast(i32, min(max(cast(i64, x[i]) * 2, -2147483648), 2147483647))",
}


# wrong where two arrays meet, at a place of the full shape, or in the order of ties
PAIRS = """
def f(x: f32[{n}], y: f32[{n}], z: Out[f32[{n}]]):
    for i in range({n}):
        z[i] = select({when}, 9.0, x[i] * 2.0 - y[i])
"""
TWO_ARRAYS = (
    "y[i] != y[i]",
    "x[i] == y[i]",
    "(y[i] > 0.0) & (y[i] < 1.17549e-38)",
    "(i == 4999) & (x[i] > y[i])",
    "(x[i] == f32('inf')) & (y[i] == f32('inf'))",
    "(x[i] == 17.0) & (y[i] == 0.0)",
    "(x[i] == 1234.5) & (y[i] == 77.25)",
)
FIRST = """
def f(x: f32[{n}], y: f32[{n}], z: Out[f32[{n}]]):
    best = alloc(f32[1])
    best[0] = x[0]
    for i in range({n}):
        if (x[i] > best[0]) | {when}:
            best[0] = x[i]
        z[i] = best[0] + y[i]
"""
LATER_TIES = (
    "(x[i] == best[0])",
    "(x[i] == 0.0) & (best[0] == 0.0) & (bitcast(u32, best[0]) > u32(0))",
    "(x[i] != x[i])",
    "(i > 4990) & (x[i] > 1.0)",
)


@pytest.mark.parametrize(("text", "whens"), [(PAIRS, TWO_ARRAYS), (FIRST, LATER_TIES)])
def test_the_gate_finds_what_two_elements_make_wrong(
    text: str, whens: tuple[str, ...]
) -> None:
    def made(when: str, n: int) -> Any:
        return parse(text.format(n=n, when=when))

    @operator(f"test_planted.two{len(whens)}")
    def two(x: Any, y: Any) -> Any:
        assert y.shape[0].value == x.shape[0].value
        return made("(i < 0)", x.shape[0].value)

    gate = Gate(two, two.workload((5000,), (5000,), dtypes="f32"), 0.0)
    missed = []
    for when in ("(i < 0)", *whens):
        try:
            for case in (*gate.small, gate.full, *gate.beyond(made(when, 5000))):
                gate.check(build(made(when, case.workload.shapes[0][0])), case)
            missed.append(when)
        except Wrong:
            continue
    assert missed == ["(i < 0)"]  # the one that is right


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a module of a name; what it defines is `name:operator`."""

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        sys.modules.pop(name, None)

    return write


def named(report: Report, way: str) -> list[str]:
    return [said for said in report.reasons if f"({way})" in said or f"={way})" in said]


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "ways"), [("f32", FLOATS), ("i32", WHOLE)])
def test_none_of_them_is_recorded_and_each_is_named(
    written: Any, storage: str, dtype: str, ways: dict[str, str]
) -> None:
    name = f"planted_{dtype}"
    written(name, DOUBLE.format(name=name, dtype=dtype, ways=ways))
    (report,) = tune(
        f"{name}:double", shapes=[(70_001,)], dtypes=dtype, budget=300, storage=storage
    )
    assert report.counts == {"ok": 2, "wrong": len(ways)}
    for way in ways:
        (said,) = named(report, way)
        assert said.startswith(f"wrong: direct(way={way}): ")
        assert "elements of y" in said
    assert report.best.knobs == {"way": "right"}
    op = find(f"{name}:double")
    x = np.arange(70_001).astype(dtype.replace("f", "float").replace("i", "int"))
    assert op.kernel(x).artifact.knobs == {"way": "right"}


@pytest.mark.long
def test_the_command_line_names_them_too(
    written: Any, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Algorithms that are wrong at ties, and in rows of infinities."""
    written("planted_sum", SUM)
    monkeypatch.setenv("COLUMNS", "400")
    from_storage = ("--storage", storage)
    said = CliRunner().invoke(
        app,
        ["tune", "planted_sum:total", "--shape=33x70", "--budget=60s", *from_storage],
    )
    assert said.exit_code == 0, said.output
    for way in ("skips_ones", "clips", "stops_at_nan"):
        assert f"1 x wrong: {way}(" in said.output
    judged = r"\d+\.\d\dx \[.*|the default stands.*"
    best = rf"default .*, best .*({judged})\n  direct\(partials=\d+\)\n"
    assert re.search(best, said.output)


SUM = '''
"""The sums of rows, by algorithms that forget something."""

from tensorlang.ir import compute, reduce_axis, select, sum
from tensorlang.ir.nodes import binary, compare
from tensorlang.ops import algorithm, operator


@operator("planted_sum.total")
def total(x):
    k = reduce_axis(x.shape[1], "k")
    return compute((x.shape[0],), lambda r: sum(x[r, k], k), name="y")


def planted(name, changed):
    @algorithm(total, name)
    def made(x):
        k = reduce_axis(x.shape[1], "k")
        return compute((x.shape[0],), lambda r: sum(changed(x[r, k]), k), name="y")


planted("skips_ones", lambda x: select(compare("eq", x, 1.0), 0.0, x))
planted("clips", lambda x: binary("min", binary("max", x, -1e4), 1e4))
planted("stops_at_nan", lambda x: select(compare("eq", x, x), x, 0.0))
'''
