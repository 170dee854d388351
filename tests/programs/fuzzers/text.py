"""IR text: broken, it is refused by a typed error; else it prints back to itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.functions import functions
from tensorlang_test_programs.fuzzing import Fuzzer
from tensorlang_test_programs.nests import nests

from tensorlang.errors import IRError, ParseError
from tensorlang.ir.text.limits import MAX_BRACKETS, MAX_CHAIN, MAX_NUMBER
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify

_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")
_FOREIGN = (
    *(
        "lambda",
        "*",
        "**",
        ":=",
        "await",
        "yield",
        "0x",
        "'",
        '"',
        "\\",
        ";",
        "\t",
        "\0",
    ),
    *("é", "del", "while", "class", "import", "@", "[", ")", "{", "...", "None", "1j"),
)
# what a limit is for, one step below and above it
_LONG = (
    *("(" * n + "n" + ")" * n for n in (MAX_BRACKETS - 60, MAX_BRACKETS, 9000)),
    *("-" * n + "n" for n in (500, MAX_CHAIN - 1, MAX_CHAIN + 1)),
    *("+".join("n" * n) for n in (MAX_CHAIN // 2, MAX_CHAIN + 2)),
    *("not " * n + "n" for n in (300, 3000)),
    *("9" * n for n in (19, MAX_NUMBER, MAX_NUMBER + 1, 5000)),
    *("1e400", "1e-400", "0." + "0" * 30 + "1", "1" * 38 + ".0"),
    *(".".join(["n"] * 400), "[0]".join(["n"] * 100), "f(" * 140, "lambda: " * 80),
)


@st.composite
def _cases(draw: Draw) -> str:
    """The text of a random function with a few tokens dropped, put in or swapped."""
    made = functions() if draw(st.booleans()) else nests().map(lambda case: case.func)
    tokens = _TOKENS.findall(show(draw(made)))
    words = [*dict.fromkeys(tokens), *_FOREIGN]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(tokens) - 1))
        word = draw(
            st.sampled_from(words) | st.sampled_from(_LONG) | st.text(max_size=9)
        )
        kind = draw(st.sampled_from(["drop", "put", "swap", "move"]))
        if kind == "move":
            word, kind = tokens[draw(st.integers(0, len(tokens) - 1))], "swap"
        tokens[at] = {"drop": "", "put": tokens[at] + word, "swap": word}[kind]
    return "".join(tokens)


def check(text: str) -> Iterable[str]:
    """Parse, verify, print, parse again.

    Raises:
        AssertionError: the tree does not print back to itself.
    """
    try:
        func = parse(text)
    except ParseError as error:
        return _refused(str(error))
    try:
        verify(func)
    except IRError:
        return ["refused by the verifier"]
    assert parse(show(func)) == func, "it does not print back to itself"
    return ["accepted"]


def _refused(message: str) -> list[str]:
    assert re.match(r"line \d+, column \d+: .", message), message
    return ["refused by the parser"]


def code(text: Any) -> str:
    """Python text that does the same."""
    return (
        "from tensorlang.ir.text.parser import parse\n"
        "from tensorlang.ir.text.printer import show\n"
        "from tensorlang.ir.verification.verifier import verify\n"
        f"f = parse({text!r})\n"
        "verify(f)\n"
        "assert parse(show(f)) == f\n"
    )


def make() -> Fuzzer:
    """The fuzzer of texts."""
    return Fuzzer(_cases(), check, code, seconds=30)
