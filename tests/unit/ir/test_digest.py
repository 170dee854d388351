"""The digest is the identity of a function: same text, same digest, everywhere."""

from __future__ import annotations

import hashlib
import subprocess
import sys

from tensorlang.ir.digest import digest
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.text.syntax import GRAMMAR

TEXT = "def f(x: Out[f32[4]]):\n    x[0] = {}\n"


def test_a_digest_is_the_hash_of_grammar_and_text():
    func = parse(TEXT.format("1.0"))
    text = f"tensorlang grammar {GRAMMAR}\n{show(func)}"
    assert digest(func) == hashlib.sha256(text.encode()).hexdigest()


def test_spelling_does_not_matter_but_the_tree_does():
    one = digest(parse(TEXT.format("1.0")))
    assert digest(parse(TEXT.format("(1.00)  # the same"))) == one
    others = ["2.0", "-1.0", "0.0", "-0.0", "contract(1.0 + 0.0)", "1.0 + 0.0"]
    digests = {digest(parse(TEXT.format(value))) for value in others}
    assert len(digests | {one}) == len(others) + 1


def test_a_digest_is_the_same_in_another_process():
    code = (
        "from tensorlang.ir.digest import digest\n"
        "from tensorlang.ir.text.parser import parse\n"
        f"print(digest(parse({TEXT.format('1.5')!r})))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == digest(parse(TEXT.format("1.5")))
