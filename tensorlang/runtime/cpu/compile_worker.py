"""Compiles modules in a process of its own, which LLVM may abort (`python -m` this)."""

from __future__ import annotations

import json

from tensorlang.errors import CodegenError
from tensorlang.runtime.cpu import llvm
from tensorlang.runtime.processes import serve


def _answer(request: bytes) -> bytes:
    try:
        return b"=" + llvm.emitted(**json.loads(request))
    except CodegenError as problem:
        return b"!" + str(problem).encode()


if __name__ == "__main__":
    serve(_answer)
