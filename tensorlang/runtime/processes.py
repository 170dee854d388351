"""Processes of our own, which answer requests: `python -m` one of our modules."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

_HEAD: Final = 8  # bytes that say how many follow


class Worker:
    """A process that runs a module, which calls `serve`, and stays for more requests.

    Args:
        module: The name of the module.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, request: bytes) -> bytes | None:
        """The answer to a request; None where the process ended over it.

        Raises:
            OSError: it cannot be started, or ends at once.
        """
        process = self._process
        if process is None or self._owner != os.getpid() or process.poll() is not None:
            process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _send(process.stdin, request)
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
        self._process = subprocess.Popen(  # noqa: S603 - a module of ours
            [sys.executable, "-P", "-m", self._module],
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
        process.kill()  # first: who reads its answer would hold the stream
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer requests until there are no more."""
    _send(sys.stdout.buffer, b"ready")
    with contextlib.suppress(EOFError):
        while True:
            _send(sys.stdout.buffer, answer(_received(sys.stdin.buffer)))


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
