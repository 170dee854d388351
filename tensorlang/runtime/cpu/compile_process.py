"""Compile in a separate process where LLVM might abort (`compile_worker`).

A failed LLVM assertion kills its process. Modules with vectors whose lane count is not
a power of two, where this has happened, are compiled in a persistent worker process. If
LLVM aborts there, the module is compiled again without optimisation. A process that
cannot start a worker compiles everything itself.
"""

from __future__ import annotations

import atexit
import json
import re
from typing import Final

from tensorlang.errors import CodegenError
from tensorlang.runtime.processes import Worker

# a vector whose lane count is not a power of two
_UNEVEN: Final = re.compile(r"<(?!(?:1|2|4|8|16|32|64|128|256|512|1024) x)\d+ x ")


def is_risky(text: str) -> bool:
    """Whether LLVM may abort on this module."""
    return _UNEVEN.search(text) is not None


class Compiler(Worker):
    """Worker process that compiles modules for the host processor."""

    def __init__(self) -> None:
        super().__init__("tensorlang.runtime.cpu.compile_worker")

    def compile(
        self, text: str, cpu: str, features: str, *, listed: bool
    ) -> bytes | None:
        """Object code (assembly if `listed`); None if no process can be started.

        Raises:
            CodegenError: LLVM rejects the module, or aborts even without optimisation.
        """
        given = {"text": text, "cpu": cpu, "features": features, "listed": listed}
        for optimised in (True, False):
            request = json.dumps(given | {"optimised": optimised}).encode()
            try:
                answer = self.ask(request)
            except OSError:
                return None
            if answer is not None:
                kind, said = answer[:1], answer[1:]
                if kind == b"!":
                    raise CodegenError(said.decode())
                return said
        raise CodegenError(
            f"LLVM aborts on this module for {cpu}, even without optimisation; "
            "schedule the operator with vectors of 4, 8 or 16 lanes"
        )


COMPILER: Final = Compiler()
atexit.register(COMPILER.stop)
