"""Worker processes that answer requests: `python -m` one of our modules."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

_HEAD: Final = 8  # bytes of a message's length prefix
_RUNNING: Final[set[int]] = set()


def running() -> frozenset[int]:
    """The ids of the processes that are running."""
    return frozenset(_RUNNING)


class Worker:
    """A persistent process that runs a module, which calls `serve`.

    Args:
        module: The name of the module.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, request: bytes) -> bytes | None:
        """The answer to a request; None if the process died on it.

        Raises:
            OSError: it cannot be started, or exits at once.
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
        except BaseException:  # a late answer must not be taken for the next one's
            self.stop()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process; OSError if it cannot be started, or exits at once."""
        if not Path(sys.executable or "").name.lower().startswith(("python", "pypy")):
            raise FileNotFoundError(f"{sys.executable!r} is not a Python interpreter")
        places = (place or str(Path.cwd()) for place in sys.path)
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # messages of failed assertions
            env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
            start_new_session=True,  # the parent handles Ctrl-C
        )
        self._owner = os.getpid()
        _RUNNING.add(self._process.pid)
        try:
            assert self._process.stdout is not None
            _received(self._process.stdout)
        except EOFError:
            self.stop()
            raise OSError("the process exited at once") from None
        return self._process

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()  # first: a thread reading its answer would hold the stream
        process.wait()
        _RUNNING.discard(process.pid)
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer requests until the input ends."""
    _send(sys.stdout.buffer, b"ready")
    with contextlib.suppress(EOFError):
        while True:
            _send(sys.stdout.buffer, answer(_received(sys.stdin.buffer)))


def _send(stream: IO[bytes], content: bytes) -> None:
    stream.write(len(content).to_bytes(_HEAD, "little") + content)
    stream.flush()


def _received(stream: IO[bytes]) -> bytes:
    """Receive a message; EOFError if the other side has closed the stream."""
    size = int.from_bytes(_exactly(stream, _HEAD), "little")
    return _exactly(stream, size)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise EOFError
    return content
