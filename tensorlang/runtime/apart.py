"""Compiling in a process of its own, where LLVM could abort: `python -m` this module.

LLVM's assertions end the process that they fail in. A text with vectors whose lanes are
no power of two, which is where that has happened, is compiled by a second process,
which stays for the next one. Where LLVM aborts there, it is asked again without its
optimiser. A process that cannot start another one compiles everything itself.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, Final

from tensorlang.errors import CodegenError

# a vector whose number of lanes is no power of two
_UNEVEN: Final = re.compile(r"<(?!(?:1|2|4|8|16|32|64|128|256|512|1024) x)\d+ x ")
_HEAD: Final = 8  # bytes that say how many follow


def is_risky(text: str) -> bool:
    """Whether LLVM may abort on a text."""
    return _UNEVEN.search(text) is not None


class Compiler:
    """A process that compiles texts for the processor that this one runs on."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def compile(
        self, text: str, cpu: str, features: str, *, listed: bool
    ) -> bytes | None:
        """Object code of a text, or assembly; None where no process can be started.

        Raises:
            CodegenError: LLVM refuses the text, or aborts on it however it is asked.
        """
        given = {"text": text, "cpu": cpu, "features": features, "listed": listed}
        for optimised in (True, False):
            try:
                answer = self._ask(given | {"optimised": optimised})
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

    def _ask(self, request: dict[str, Any]) -> bytes | None:
        """The answer to a request; None where the process ended over it."""
        process = self._process
        if process is None or self._owner != os.getpid() or process.poll() is not None:
            process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _send(process.stdin, json.dumps(request).encode())
            return _received(process.stdout)
        except (BrokenPipeError, EOFError):
            self.stop()
            return None
        except BaseException:  # its answer is not the next request's
            self.stop()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        """A new process.

        Raises:
            OSError: it cannot be started, or ends at once.
        """
        if not Path(sys.executable or "").name.lower().startswith(("python", "pypy")):
            raise FileNotFoundError(f"{sys.executable!r} is no interpreter")
        places = (place or str(Path.cwd()) for place in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tensorlang.runtime.apart"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # an assertion's words
            env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
            start_new_session=True,  # Ctrl-C is this process's to handle
        )
        self._owner = os.getpid()
        try:
            assert self._process.stdout is not None
            _received(self._process.stdout)
        except EOFError:
            self.stop()
            raise OSError("the process ended at once") from None
        return self._process

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        process.kill()
        process.wait()


def _send(stream: IO[bytes], content: bytes) -> None:
    stream.write(len(content).to_bytes(_HEAD, "little") + content)
    stream.flush()


def _received(stream: IO[bytes]) -> bytes:
    """What the other side sent.

    Raises:
        EOFError: it has ended.
    """
    size = int.from_bytes(_exactly(stream, _HEAD), "little")
    return _exactly(stream, size)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise EOFError
    return content


def serve() -> None:
    """Answer requests until there are no more."""
    from tensorlang.runtime import llvm  # noqa: PLC0415 - which imports this module

    _send(sys.stdout.buffer, b"ready")
    with contextlib.suppress(EOFError):
        while True:
            request = json.loads(_received(sys.stdin.buffer))
            try:
                answer = b"=" + llvm.emitted(**request)
            except CodegenError as problem:
                answer = b"!" + str(problem).encode()
            _send(sys.stdout.buffer, answer)


COMPILER: Final = Compiler()
atexit.register(COMPILER.stop)

if __name__ == "__main__":
    serve()
