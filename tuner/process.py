"""The worker process, seen from the tuner: started, asked, watched, replaced.

A worker is reused from candidate to candidate, for starting one costs seconds; it is
replaced after a crash or a hang, and the candidate that did it is filed with what it
was doing. The tuner sleeps while the worker works.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import IO, Any, Final, Self

from tensorlang.errors import TuningError
from tensorlang.tuner import protocol
from tensorlang.tuner.patience import Patience
from tensorlang.tuner.protocol import CRASHED, HUNG, Candidate, Outcome
from tensorlang.workload import Workload

_START_SECONDS: Final = 60.0
_DOING: Final = {
    "build": "building",
    "estimate": "being estimated",
    "check": "being checked",
    "measure": "being timed",
}


class Died(Exception):  # noqa: N818 - an event, told as an outcome
    """The worker ended while it was working; the message says how."""


class Silent(Exception):  # noqa: N818 - an event, told as an outcome
    """The worker did not answer in time."""


class Worker:
    """A worker for one operator and workload; use it as a context manager.

    Args:
        operator: The operator's id, or `module:name`.
        workload: What its candidates compute.
        target: The target's name.
        static: Whether candidates are compiled and estimated only, as where no device
            of the target's kind is.
        log: Where everything goes that workers print, tracebacks among it.

    Attributes:
        started: How many processes there were.
        measured: On a GPU, under what the last finals were timed; for people.
    """

    def __init__(
        self,
        operator: str,
        workload: Workload,
        target: str,
        *,
        static: bool = False,
        log: Path | None = None,
    ) -> None:
        self._opening = {
            "do": "open",
            "operator": operator,
            "workload": workload.to_json(),
            "target": target,
            "static": static,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._log = log
        self._errors: IO[bytes] | None = None
        self._said = 0  # bytes of the log that were there before the process
        self._pending = b""
        self._stage = ""
        self._open = False
        self.started = 0
        self.measured = ""

    def __enter__(self) -> Self:
        """Start the process; it loads while the tuner prepares."""
        self._spawn()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def attempt(
        self,
        candidate: Candidate,
        limit: float,
        best: float = 0.0,
        *,
        left: float = inf,
    ) -> Outcome:
        """Have it built, checked and timed within `limit` seconds.

        Starting a worker is not part of it, nor is what it waits for a processor.

        Args:
            candidate: What to try.
            limit: Seconds at work after which it counts as hung.
            best: The best time so far; what is far behind is timed once only.
            left: Seconds after which there is no more time for it in any case.

        Raises:
            TuningError: the worker cannot start, or cannot judge anything.
        """
        start = time.perf_counter()
        request = {"do": "attempt", "best": best, **_plain(candidate)}
        try:
            return Outcome.from_json(self._ask(request, limit, left))
        except Died as death:
            status, reason = CRASHED, str(death)
        except Silent:
            status = HUNG
            reason = f"not done after {limit:.3g} s, still {self._doing()}"
        self.stop()
        return Outcome(status, reason, spent={"lost": time.perf_counter() - start})

    def finals(
        self, candidates: Sequence[Candidate], rounds: int, limit: float
    ) -> tuple[dict[str, list[float]], dict[str, str]]:
        """Time candidates interleaved.

        Returns:
            Samples in seconds by key, and why the others are no longer right.

        Raises:
            Died, Silent: the worker is gone; it was one of the candidates.
        """
        items = [_plain(candidate) for candidate in candidates]
        request = {"do": "finals", "candidates": items, "rounds": rounds}
        try:
            answer = self._ask(request, inf, limit)
        except (Died, Silent):
            self.stop()
            raise
        self.measured = str(answer.get("measured", ""))
        return answer["samples"], answer["failed"]

    def stop(self) -> None:
        """End the process and what it started; nothing happens where none runs."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _ask(self, request: Mapping[str, object], limit: float, left: float) -> Any:
        """The answer to a request, within `limit` seconds at work and `left` at all."""
        until = time.monotonic() + left
        if self._process is None:
            self._spawn()
        if not self._open:
            self._opened()
        self._stage = ""
        self._send(request)
        return self._answer(limit, until)

    def _spawn(self) -> None:
        opened = tempfile.TemporaryFile if self._log is None else self._log.open
        self._errors = errors = opened("ab+")
        self._said = errors.seek(0, os.SEEK_END)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tensorlang.tuner.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"PYTHONPATH": _import_path()},
            start_new_session=True,  # Ctrl-C is the tuner's to handle
        )
        self._pending, self._stage, self._open = b"", "", False
        self.started += 1

    def _opened(self) -> None:
        try:
            self._send(self._opening)
            self._answer(_START_SECONDS)
        except (Died, Silent, TuningError) as problem:
            self.stop()
            raise TuningError(f"the worker could not start: {problem}") from None
        self._open = True

    def _send(self, request: Mapping[str, object]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(protocol.encode(request))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Died(self._death()) from None

    def _answer(self, limit: float, until: float = inf) -> Any:
        assert self._process is not None
        patience = Patience(self._process.pid, limit, until)
        while True:
            message = protocol.read(self._line(patience))
            if "stage" in message:
                self._stage = str(message["stage"])
            elif "error" in message:
                raise TuningError(str(message["error"]))
            else:
                return message["answer"]

    def _line(self, patience: Patience) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                wait = patience.next_look()
                if not selector.select(wait):
                    if not wait:
                        raise Silent("no answer in time")
                    continue
                data = os.read(descriptor, 1 << 16)
                if not data:
                    raise Died(self._death())
                self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode("utf-8", "replace")

    def _death(self) -> str:
        """How the worker ended, in words, with the last line it had to say."""
        assert self._process is not None
        code = self._process.wait()
        if code < 0:
            how = f"killed by {signal.Signals(-code).name}"
            if -code in (signal.SIGSEGV, signal.SIGBUS):
                how += ", as by an access outside of an array,"
        else:
            how = f"ended with code {code}"
        assert self._errors is not None
        self._errors.seek(self._said)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        last = f": {said[-1][:200]}" if said and code >= 0 else ""
        return f"{how} while {self._doing()}{last}"

    def _doing(self) -> str:
        if not self._open:
            return "starting"
        return _DOING.get(self._stage, "being timed")


def _import_path() -> str:
    """This process's: what can be imported here, the worker can import too.

    In the same order: what lies in the working directory hides no standard module.
    """
    return os.pathsep.join(place or str(Path.cwd()) for place in sys.path)


def _plain(candidate: Candidate) -> dict[str, object]:
    return {"algorithm": candidate.algorithm, "knobs": dict(candidate.knobs)}
