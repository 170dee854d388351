"""Gradients written by hand are those that the documentation gives a reason for."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from tensorlang.ops import operators
from tensorlang.ops.derived_gradients import DerivedGradient
from tensorlang.ops.elementwise import Elementwise

TEXT = (Path(__file__).parents[3] / "docs" / "extending.md").read_text(encoding="utf-8")
LIBRARY = ("math", "nn")


def by_hand() -> list[str]:
    """The names of the operators whose gradients are written by hand."""
    found = []
    for op in operators():
        package, _, name = op.id.partition(".")
        if package not in LIBRARY or not name.endswith("_grad"):
            continue
        body = op.element if isinstance(op, Elementwise) else op.body
        derived = body.__module__ == Elementwise.__module__
        if not derived and not isinstance(op, DerivedGradient):
            found.append(name.removesuffix("_grad"))
    return found


def documented() -> list[str]:
    """The patterns of the first column of the table."""
    _, _, rest = TEXT.partition("Gradients of the library that are written by hand")
    rows = re.findall(r"^\| (`.*?) \|", rest.partition("\n## ")[0], re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_each_gradient_written_by_hand_has_its_reason():
    names, patterns = by_hand(), documented()
    matches = {name: [p for p in patterns if fnmatch(name, p)] for name in names}
    assert {name: found for name, found in matches.items() if len(found) != 1} == {}
    assert [p for p in patterns if not any(fnmatch(n, p) for n in names)] == []


def test_gradients_written_by_hand_do_not_become_more():
    assert len(by_hand()) <= 37
