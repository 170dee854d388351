"""Few names for many things: loops and conditions, most of which are dissolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.fuzzing import Fuzzer

from tensorlang import targets
from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse

Case: TypeAlias = "tuple[str, str]"  # a function's text, and the target that it is for

LENGTH: Final = 5
NAMES: Final = ("a", "b", "m")
DTYPES: Final = ("i64", "i32")
EXTENTS: Final = ("1", "1", "2", "3", "0", "n", "min(n, 1)")
CONDITIONS: Final = ("n >= 0", "i >= 0", "n > 3", "i < 2", "n < 0")
STEPS: Final = ("+ 1", "* 2", "// 2", "% 3", "- 7")
LOOPS: Final = {
    "llvm": f"parallel({LENGTH})",
    "opencl": f"parallel({LENGTH})",
    "cuda:sm_80": f'bound({LENGTH}, "block.x")',
}


def make(*kinds: str) -> Fuzzer:
    """The fuzzer of scopes, for these targets, or for CPUs and, lowered only, CUDA."""
    return Fuzzer(_cases(kinds or ("llvm", "cuda:sm_80")), check, code, batch=40)


@st.composite
def _cases(draw: Draw, kinds: tuple[str, ...]) -> Case:
    target = draw(st.sampled_from(kinds))
    lines = [
        "def f(x: i64[5], y: InOut[i64[5]], *, n: i64):",
        f"    for i in {LOOPS[target]}:",
        *_body(draw, 2, {"i": "i64", "n": "i64"}, frozenset("xyin")),
    ]
    return "\n".join(lines) + "\n", target


def _body(
    draw: Draw, level: int, scope: Mapping[str, str], taken: frozenset[str]
) -> Iterator[str]:
    """Statements that bind names, new along the path, and add to an element."""
    own = dict(scope)
    for _ in range(draw(st.integers(2, 5))):
        free = [name for name in NAMES if name not in taken]
        kinds = [
            "store",
            *["if", *["let", "let", "for", "for"] * bool(free)] * (level < 5),
        ]
        kind = draw(st.sampled_from(kinds))
        name = draw(st.sampled_from(free)) if kind in ("let", "for") else ""
        if kind == "let":
            dtype = draw(st.sampled_from(DTYPES))
            yield _line(level, f"{name}: {dtype} = {_value(draw, own, dtype)}")
            own[name], taken = dtype, taken | {name}
        elif kind == "for":
            extent = draw(st.sampled_from(EXTENTS))
            loops = ["range", *["unrolled"] * extent.isdigit()]
            yield _line(
                level, f"for {name} in {draw(st.sampled_from(loops))}({extent}):"
            )
            yield from _body(draw, level + 1, {**own, name: "i64"}, taken | {name})
        elif kind == "if":
            yield _line(level, f"if {draw(st.sampled_from(CONDITIONS))}:")
            yield from _body(draw, level + 1, own, taken)
        else:
            yield _store(draw, level, own)
    yield _store(draw, level, own)


def _store(draw: Draw, level: int, scope: Mapping[str, str]) -> str:
    return _line(level, f"y[i] = y[i] * 3 + {_value(draw, scope, 'i64')}")


def _value(draw: Draw, scope: Mapping[str, str], dtype: str) -> str:
    name = draw(st.sampled_from(sorted(scope.keys() - {"i", "n"}) or ["i", "n"]))
    value = name if scope[name] == "i64" else f"cast(i64, {name})"
    more = draw(st.sampled_from(["", " + x[i]"]))
    value = f"{value} {draw(st.sampled_from(STEPS))}{more}"
    return value if dtype == "i64" else f"cast({dtype}, {value})"


def _line(level: int, text: str) -> str:
    return "    " * level + text


def _given() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(3, 3 + LENGTH), np.ones(LENGTH, "i8")


def check(case: Case) -> Iterable[str]:
    """Compute the same on the target, or lowered for it, as in the interpreter.

    Raises:
        AssertionError: it does not.
    """
    from tensorlang.runtime import build

    text, target = case
    func, (x, wanted), got = parse(text), _given(), _given()[1]
    run(func, x, wanted, n=LENGTH)
    if target in targets.KINDS:
        build(func, target, store=False)(x, got, LENGTH)
    else:
        run(lower(func, targets.get(target)), x, got, n=LENGTH)
    np.testing.assert_array_equal(got, wanted)
    return [target]


def code(case: Case) -> str:
    """Python text that raises at a prompt as `check` does."""
    text, target = case
    kernel = f"lambda x, y: build(f, {target!r}, store=False)(x, y, {LENGTH})"
    if target not in targets.KINDS:
        lowered = f"lower(f, get({target!r}))"
        kernel = f"lambda x, y: run({lowered}, x, y, n={LENGTH})"
    return (
        "import numpy as np\n"
        "from tensorlang import build\n"
        "from tensorlang.codegen.simt.lower import lower\n"
        "from tensorlang.ir.interpreter import run\n"
        "from tensorlang.ir.text.parser import parse\n"
        "from tensorlang.targets import get\n"
        f'f = parse("""\n{text}""")\n'
        f"x, wanted, got = np.arange(3, 8), np.ones(5, 'i8'), np.ones(5, 'i8')\n"
        f"_ = run(f, x, wanted, n={LENGTH})\n"
        f"_ = ({kernel})(x, got)\n"
        "np.testing.assert_equal(got, wanted)\n"
    )
