"""Names, constants and attributes in program text."""

from __future__ import annotations

import json
import re
from typing import Final

import numpy as np

from tensorlang.graph.networks.leaves import ConstantKey, ConstantTensor
from tensorlang.graph.specs import Dim, KeySpec

SHOWN: Final = 64  # elements of a constant; larger ones are shown by type only
RESERVED: Final = frozenset(
    (
        *("return", "take", "replay", "read", "write", "ref", "weight", "function"),
        *("graph", "checkpoint", "custom", "None", "True", "False", "inf", "nan"),
        *("let", "zeros", "if", "for", "while", "for_grad", "while_grad", "else"),
        *("do", "back"),
    )
)


def quoted(path: str) -> str:
    """A path, quoted if it has more than letters, digits, `.` and `_`."""
    return path if re.fullmatch(r"[A-Za-z0-9_.]+", path) else json.dumps(path)


def plain(name: str) -> str:
    """A name of ASCII letters, digits and underscores."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII) or "x"
    return f"_{made}" if made[0].isdigit() else made


def unique(name: str, taken: set[str]) -> str:
    """A unique name similar to this one; it is added to `taken`."""
    base, tries = plain(name), 1
    made = f"{base}_" if base in RESERVED else base
    while made in taken:
        tries += 1
        made = f"{base}_{tries}"
    taken.add(made)
    return made


def constant(value: ConstantTensor | ConstantKey) -> str:
    """An array or key with its numbers, to the bit; if large, only its type."""
    data = value.data if isinstance(value, ConstantTensor) else value.data.words
    spec = value.spec
    kind = spec.impl if isinstance(spec, KeySpec) else spec.dtype
    shape = f"[{', '.join(map(str, spec.shape))}]" if spec.shape else ""
    if data.size > SHOWN:
        return f"{kind}{shape}(...)"
    return f"{kind}{shape}({', '.join(map(str, data.reshape(-1)))})"


def literal(value: object) -> str:
    """A number, string, size or None; anything else by its repr."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, Dim)):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    return f"<{json.dumps(repr(value)[:80])}>"
