"""The parser reads the grammar and refuses all else with one located sentence."""

from __future__ import annotations

import pytest

from tensorlang.errors import ParseError
from tensorlang.ir.text import limits as text_limits
from tensorlang.ir.text.parser import parse

HEAD = "def f(x: f32[4], y: Out[f32[4]], *, n: i64):\n"


def line(statement: str) -> str:
    return f"{HEAD}    {statement}\n"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("__import__('os')", "'__import__' is no function of the IR"),
        ("x.shape", "an attribute access is not part of the IR"),
        ("x[0].real", "an attribute access is not part of the IR"),
        ("[x[i] for i in n]", "a comprehension is not part of the IR"),
        ("(lambda: 1)()", "only a named function of the IR can be called"),
        ("lambda: 1", "a lambda outside a layout is not part of the IR"),
        ('f"{n}"', "an f-string is not part of the IR"),
        ('"text"', "a str is not a value of the IR"),
        ("None", "a NoneType is not a value of the IR"),
        ("...", "a ellipsis is not a value of the IR"),
        ("1j", "'1j' is no number: write decimals"),
        ("0x1F", "'0x1F' is no number: write decimals"),
        ("1_000", "'1_000' is no number"),
        ("select(n > 1and 2)", "'1and' is no number"),
        ("x[0] if n else x[1]", "'a if c else b' .write select.c, a, b.."),
        ("n and n", "'and' or 'or' .write '&' or '|'."),
        ("not n", "only '-' and '~' are in the IR"),
        ("+n", "only '-' and '~' are in the IR"),
        ("n ** 2", "not operators of the IR"),
        ("n @ n", "not operators of the IR"),
        ("0 < n < 4", "compare two values"),
        ("n is n", "compare two values"),
        ("(n := 3)", "':=' is not part of the IR"),
        ("x", "'x' is a buffer; read it as x"),
        ("m", "no variable 'm' is in scope here"),
        ("z[0]", "no buffer 'z' is declared here"),
        ("x[0:2]", "a slice of a buffer is not part of the IR"),
        ("splat(n, 4)[2:6]", "i64x4 has no lanes 2:6"),
        ("splat(n, 4)[2:2]", "i64x4 has no lanes 2:2"),
        ("n[0:999999999999]", "i64 has no lanes 0:999999999999"),
        ("splat(n, 4)[0:4:2]", "expected an element of a buffer"),
        ("splat(n, 4)[:2]", "expected an element of a buffer"),
        ("x[*n]", "'\\*' before a value is not part of the IR"),
        ("min(*n)", "'\\*' before an argument is not part of the IR"),
        ("x[0, 1]", "x has 1 dimensions, indexed with 2"),
        ("9223372036854775808", "9223372036854775808 is not a value of i64"),
        ("u8(256)", "256 is not a value of u8: 0 .. 255"),
        ("u8(n)", "u8.* takes a literal of that kind; convert with cast"),
        ("f32(3)", "f32.* takes a literal of that kind"),
        ("1e400", "the number is too big for f32"),
        ("f16(1e6)", "the number is too big for f16"),
        ("cast(float, n)", "expected an element type such as f32"),
        ("exp(n)", "exp needs floats, got i64"),
        ("exp(x[0], x[1])", "exp takes 1 arguments, not 2"),
        ("min(x[0])", "min takes 2 arguments, not 1"),
        ("exp(x[0], base=2)", r"exp has no \(second\) argument 'base'"),
        ("x[0] + n", "'add' needs operands of one type, got f32 and i64"),
        ("contract(n)", "contract.* takes one arithmetic operation"),
        ("splat(x[0], n)", "expected a whole number"),
        ("splat(x[0], True)", "expected a whole number"),
        ("lane_reduce(add, splat(x[0], 4))", "expected a quoted word"),
    ],
)
def test_a_foreign_expression_is_refused_where_it_stands(value, message):
    with pytest.raises(ParseError, match=message) as caught:
        parse(line(f"y[0] = {value}"))
    assert str(caught.value).startswith("line 2, column ")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("import os", "Python's Import is not a statement of the IR"),
        ("exec('1')", "a statement on its own is one of reduce, store"),
        ("'a docstring'", "a statement on its own is one of reduce, store"),
        ("return n", "Python's Return is not a statement of the IR"),
        ("def g(): pass", "Python's FunctionDef is not a statement of the IR"),
        ("class A: pass", "Python's ClassDef is not a statement of the IR"),
        ("del x", "Python's Delete is not a statement of the IR"),
        ("global x", "Python's Global is not a statement of the IR"),
        ("y[0] += 1.0", "Python's AugAssign is not a statement of the IR"),
        ("a = 3", "name a value, a: f32 = e"),
        ("a = b = y[0]", "name a value, a: f32 = e"),
        ("y.a: i64 = 3", "a named value is written a: f32 = e"),
        ("a: i64", "a named value is written a: f32 = e"),
        ("a: i32 = 3", "let a needs operands of one type, got i32 and i64"),
        ("__a__: i64 = 3", "'__a__' starts with two underscores"),
        ("for i in x: pass", "a loop runs over range, parallel"),
        ("for i in range(1, 2): pass", "range takes 1 arguments, not 2"),
        ("for i, j in range(4): pass", "a loop has one variable"),
        ("for i in bound(4): pass", "bound takes 2 arguments, not 1"),
        ("with open('f'): pass", "expected 'with block"),
        ("with block(): pass", "a block starts with its name in quotes"),
        ("with block('b', v=f(1, 2)): pass", "an axis is written vi=kind"),
        ("with block('b', **n): pass", "an axis is written vi=kind"),
        ("with init(): pass", "expected 'with block"),
        ("t = alloc(f32)", "expected an element type with a shape"),
        ("t = alloc(f32[4], size=3)", r"alloc has no \(second\) argument 'size'"),
        ("t = alloc(f32[4], scope='disk')", "'disk' is not in"),
        ("t = alloc(f32[4], layout=n)", "a layout is a lambda of the indices"),
        ("t = alloc(f32[4], layout=lambda i=1: i)", "lambda has no defaults"),
        ("t = alloc(f32[4], layout=lambda *i: i)", "takes plain indices only"),
        ("t = alloc(f32[4], layout=lambda i: n)", "no variable 'n' is in scope"),
        ("reduce(sum, y[0], n)", "reducing into y needs operands of one type"),
        ("reduce(mean, y[0], x[0])", "no reducer 'mean' of .f32. is declared"),
        ("reduce(sum, y, x[0])", "expected an element of a buffer"),
        ("reduce('sum', y[0], x[0])", "is the name of a reducer"),
        ("reduce(argmax, (y[0], y[1]), x[0])", "have the same indices"),
        ("store(y[0], 1.0, mask=n)", "a mask is a bool"),
        ("store(y[0], 1.0, hints=('fast',))", "hints are"),
        ("atomic('avg', y[0], 1.0)", "'avg' is not in"),
    ],
)
def test_a_foreign_statement_is_refused_where_it_stands(statement, message):
    with pytest.raises(ParseError, match=message):
        parse(line(statement))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text holds no function"),
        ("1 + 1", "the text is a function"),
        ("@cache\ndef f(): pass", "a function has no decorator"),
        ("async def f(): pass", "the text is a function"),
        ("def f(x=1): pass", "a signature has typed names only"),
        ("def f(*x): pass", "a signature has typed names only"),
        ("def f(x) -> i64: pass", "a signature has typed names only"),
        ("def f(x): pass", "x needs a type, such as f32"),
        ("def f(x: f32): pass", "expected an element type with a shape"),
        ("def f(x: list[4]): pass", "expected an element type such as f32"),
        ("def f(x: f32[m]): pass", "no variable 'm' is in scope here"),
        ("def f(x: f32x4[2]): pass", "a buffer holds scalars, not f32x4"),
        ("def f(*, n): pass", "expected an element type such as f32"),
        ("def f(*, n: i64 = 3): pass", "a signature has typed names only"),
        ("def f(): pass\ndef g(): pass", "what comes before the function is"),
        ("@reducer\ndef r(a: f32, b: f32): pass", "what comes before the function"),
        ("def f(:", "not the syntax"),
        ("def f():\npass", "not the syntax"),
        ("def f(): pass */", "not the syntax"),
        ("def f():\n    y[0] = 0123", "not the syntax"),
    ],
)
def test_what_is_no_function_is_refused(text, message):
    with pytest.raises(ParseError, match=message):
        parse(text if "reducer" not in text else text + "\ndef f(): pass")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    return a", "a reducer's body is 'identity"),
        ("    identity(0.0)\n    return c", "no variable 'c' is in scope"),
        ("    identity(a)\n    return a", "no variable 'a' is in scope"),
        ("    identity(0)\n    return a", "needs operands of one type"),
        ("    identity(0.0)\n    return a, b", "differ in length"),
    ],
)
def test_a_broken_reducer_is_refused(body, message):
    text = (
        f"@reducer(commutative=True)\ndef r(a: f32, b: f32):\n{body}\n\n{HEAD}    pass"
    )
    with pytest.raises(ParseError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("(" * 10_000 + "n" + ")" * 10_000, "brackets nest deeper than 150"),
        ("x[" * 100_000, "brackets nest deeper than 150"),
        ("1" * 5_000, "a number has at most 40 characters"),
        ("0x" + "f" * 5_000, "a number has at most 40 characters"),
        ("1e" + "9" * 5_000, "a number has at most 40 characters"),
        ("n" + " + n" * 5_000, "more than 1500 operators in a row"),
        ("~" * 5_000 + "n", "more than 1500 operators in a row"),
        ("~" * 1_400 + "n", "nests too deep"),
        ("n if n else " * 1_400 + "n", "more than 1500 operators in a row"),
        ("not " * 1_400 + "n", "nests too deep|only '-' and '~'"),
        ('"' + "a" * 5_000 + '"', "a string has at most 200 characters"),
        ('"' * 3 + "a" + '"' * 3, "not a value of the IR"),
        (r'"\x41"', "strings are plain, on one line, without escapes"),
        ("n \\\n + n", "strings are plain, on one line, without escapes"),
        ("n\t+ n", "plain ASCII without tabs"),
        ("n + \N{GREEK SMALL LETTER PI}", "plain ASCII without tabs"),
        ("n\0", "plain ASCII without tabs"),
        ("n" * 500, "no variable"),
        ("1.0; import os", "there is one statement a line, without ';'"),
    ],
)
def test_hostile_text_is_refused_quickly(value, message):
    with pytest.raises(ParseError, match=message):
        parse(line(f"y[0] = {value}"))


def test_text_that_is_too_big_is_refused():
    with pytest.raises(ParseError, match="1048585 characters; at most 1048576"):
        parse("def f(): " + " " * text_limits.MAX_CHARACTERS)
    with pytest.raises(ParseError, match="more than 30000 lines"):
        parse("\n" * 40_000)
    with pytest.raises(ParseError, match="more than 200000 words and signs"):
        parse(line(f"y[0] = min({'n,' * 150_000})"))


def test_deep_indentation_is_refused():
    deep = "".join(" " * n + "while c:\n" for n in range(1, 300))
    with pytest.raises(ParseError, match="indented by more than 256 spaces"):
        parse(f"def f(*, c: i64):\n{deep}")
    with pytest.raises(ParseError, match="too many levels of indentation"):
        parse(f"def f(*, c: i64):\n{deep[:20_000]}")


def test_a_long_chain_of_else_if_is_refused():
    chain = "".join(f"    elif x[{n}] > 0.0:\n        pass\n" for n in range(5_000))
    with pytest.raises(ParseError, match=r"nests too deep|not the syntax"):
        parse(f"{HEAD}    if x[0] > 0.0:\n        pass\n{chain}")


@pytest.mark.parametrize("name", ["a" * 129, "__init__", "__a"])
def test_names_pass_a_filter(name):
    for text in (
        f"def {name}(): pass",
        f"def f({name}: f32[4]): pass",
        f"def f(*, {name}: i64): pass",
        line(f"{name}: i64 = 3"),
        line(f"{name} = alloc(f32[4])"),
        line(f"for {name} in range(4): pass"),
        line(f"with block('b', {name}=spatial(4, 0)): pass"),
        line(f"t = alloc(f32[4], layout=lambda {name}: {name})"),
    ):
        with pytest.raises(ParseError, match=r"at most 128 characters|underscores"):
            parse(text)


def test_an_error_names_line_and_column():
    with pytest.raises(ParseError, match=r"^line 3, column 12: no buffer 'z'"):
        parse(f"{HEAD}    # a comment is fine\n    y[0] = z[1]\n")


def test_where_sees_axes_and_loops():
    nest = (
        "for i in range(4):\n"
        "        with block('b', v=spatial(4, i), where=(v < 3) & (i < 3)):\n"
        "            y[v] = x[v]"
    )
    assert parse(line(nest)).name == "f"
