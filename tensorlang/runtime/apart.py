"""Compiling in a process of its own, where LLVM could abort: `python -m` this module.

LLVM's assertions end the process that they fail in. A text with vectors whose lanes are
no power of two, which is where that has happened, is compiled by a second process,
which stays for the next one. Where LLVM aborts there, it is asked again without its
optimiser. A process that cannot start another one compiles everything itself.
"""

from __future__ import annotations

import atexit
import json
import re
from typing import Final

from tensorlang.errors import CodegenError
from tensorlang.runtime.processes import Worker, serve

# a vector whose number of lanes is no power of two
_UNEVEN: Final = re.compile(r"<(?!(?:1|2|4|8|16|32|64|128|256|512|1024) x)\d+ x ")


def is_risky(text: str) -> bool:
    """Whether LLVM may abort on a text."""
    return _UNEVEN.search(text) is not None


class Compiler(Worker):
    """A process that compiles texts for the processor that this one runs on."""

    def __init__(self) -> None:
        super().__init__("tensorlang.runtime.apart")

    def compile(
        self, text: str, cpu: str, features: str, *, listed: bool
    ) -> bytes | None:
        """Object code of a text, or assembly; None where no process can be started.

        Raises:
            CodegenError: LLVM refuses the text, or aborts on it however it is asked.
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
            f"LLVM aborts on this text for {cpu}, with its optimiser and without; "
            "schedule the operator with vectors of 4, 8 or 16 lanes"
        )


def _answer(request: bytes) -> bytes:
    from tensorlang.runtime import llvm  # noqa: PLC0415 - which imports this module

    try:
        return b"=" + llvm.emitted(**json.loads(request))
    except CodegenError as problem:
        return b"!" + str(problem).encode()


COMPILER: Final = Compiler()
atexit.register(COMPILER.stop)

if __name__ == "__main__":
    serve(_answer)
