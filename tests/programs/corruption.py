"""Broken data: a few bytes of a file changed, or a few values of a JSON tree."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw

ODD: Final = (
    *(None, True, False, 0, 1, -1, 2.5, -0.0, 1 << 31, 1 << 62, -(1 << 63), 10**400),
    *(float("nan"), float("inf"), float("-inf"), 1e308, 5e-324),
    *(
        "",
        "a",
        "0",
        "../../x",
        "a/b",
        "CON",
        "\0",
        "\n",
        "\x1b[2J",
        "\ud800",
        "é" * 200,
    ),
    *([], {}, [[]], [None], {"": None}, [0] * 300, {"a": {"a": []}}),
)


def corrupted(draw: Draw, data: bytes) -> bytes:
    """The bytes of a file with some of them changed."""
    made = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(made)))
        how = draw(st.integers(0, 3))
        if how == 0:
            made[at : at + draw(st.integers(1, 9))] = b""
        elif how == 1:
            made[at:at] = draw(st.binary(min_size=1, max_size=6))
        else:
            made[at : at + 1] = bytes([draw(st.integers(0, 255))])
    return bytes(made)


def changed(draw: Draw, tree: Any) -> Any:
    """A JSON tree with one value dropped, added, replaced, or put elsewhere."""
    made = copy.deepcopy(tree)
    places = list(_places(made))
    holder, key = draw(st.sampled_from(places))
    other, at = draw(st.sampled_from(places))
    match draw(st.sampled_from(("replace", "move", "drop", "add"))):
        case "replace":
            holder[key] = draw(st.sampled_from(ODD))
        case "move":
            holder[key] = copy.deepcopy(other[at])
        case "drop":
            del holder[key]
        case "add" if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(other[at]))
        case "add":
            holder[draw(st.text(max_size=4))] = draw(st.sampled_from(ODD))
    return made


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every value below a tree, as what holds it and where."""
    if not isinstance(tree, (dict, list)):
        return
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        yield from _places(tree[key])
