"""The worker process from the tuner's side: start, request, monitor, replace.

A worker is reused between candidates, as starting one takes seconds; it is replaced
after a crash or hang, and the candidate is recorded with the stage it was in. A worker
that is killed from outside, as by the system where memory runs out, says nothing about
the candidate, which is tried again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import IO, Any, Final, Self

from tensorlang.errors import ArgumentError, TuningError
from tensorlang.scheduling import Knobs
from tensorlang.tuner.workers import guard, protocol
from tensorlang.tuner.workers.patience import Patience
from tensorlang.workload import Workload

_LOG: Final = logging.getLogger(__name__)
_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 10.0  # busy seconds to end after the pipes are closed
_STOP_SECONDS: Final = 10.0  # for guards to end what was started
_POLL: Final = 0.01  # seconds between two looks at them
_PAUSES: Final = (0.0, 0.5, 3.0)  # seconds before each attempt to start, or to go on
_FURTHER: Final = 2  # attempts to start, each after the last of the pauses
_TAG: Final = "TENSORLANG_TUNER_WORKER"  # inherited by what a candidate starts
_FAULTS: Final = (  # signals that a process causes itself
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGILL,
    signal.SIGFPE,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
)
_NO_MEMORY: Final = re.compile(
    "out of memory|bad_alloc|Cannot allocate memory", re.IGNORECASE
)
_DOING: Final = {
    "schedule": "being scheduled",
    "predict": "predicting times",
    "build": "building",
    "estimate": "being estimated",
    protocol.EXPECT: "waiting for what is expected of it",
    "check": "being checked",
    protocol.WAIT: "waiting for the device",
    "measure": "being timed",
}


_GUARD: Final = (sys.executable, "-I", "-S", guard.__file__)
_WORKER: Final = (sys.executable, "-P", "-m", "tensorlang.tuner.workers")


class Died(Exception):  # noqa: N818 - an event, told as an outcome
    """The worker died during a request; the message says how."""

    def __init__(self, said: str, *, outside: bool = False) -> None:
        super().__init__(said)
        self.outside = outside  # whether something else than the candidate killed it


class Silent(Exception):  # noqa: N818 - an event, told as an outcome
    """The worker did not answer in time."""


class Late(Silent):
    """The deadline came before the worker had spent its time."""


class Unavailable(TuningError):  # noqa: N818 - likewise
    """No worker can be started at present."""


class WorkerProcess:
    """The process of a worker for one operator and workload; a context manager.

    Args:
        operator: The operator's id, or `module:name`.
        workload: The workload of its candidates.
        target: The target's name.
        static: Whether candidates are only compiled and estimated, without a device.
        log: File for the output of workers, tracebacks included.

    Attributes:
        started: The number of processes started.
        start_seconds: How long the last one took to start.
        deadline: When the run ends, by `time.monotonic`: half of the time until then is
            for waiting for the device.
        unlocked: Why something was measured without waiting for the device any longer;
            else empty.
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
        self._tag = uuid.uuid4().hex
        self._errors: IO[bytes] | None = None
        self._said = 0  # size of the log before the process started
        self._pending = b""
        self._stage = ""
        self._open = self._asking = self._ended = False
        self.started = 0
        self.start_seconds = 0.0
        self.deadline, self.unlocked = inf, ""
        self._spawned = 0.0

    def __enter__(self) -> Self:
        """Start the process; it loads while the tuner prepares."""
        with contextlib.suppress(OSError):  # tried again when it is needed
            self._spawn()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill the process and all that it started, if it is running."""
        process, self._process = self._process, None
        if process is None:
            return
        until = time.monotonic() + _STOP_SECONDS
        try:
            process.terminate()  # the guard ends all that it inherits
            _signal_group(process, signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            while _is_group_alive(process.pid) and time.monotonic() < until:
                time.sleep(_POLL)  # the guard was killed, and its own guard does it
        finally:  # also on Ctrl-C
            _signal_group(process, signal.SIGKILL)
            process.wait()
            _kill_tagged(self._tag)
            for stream in (process.stdin, process.stdout, self._errors):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def end(self) -> None:
        """Have the process end for good, whatever another thread asks it for."""
        self._ended = True
        if (process := self._process) is not None:
            process.terminate()

    def _ask(
        self,
        request: Mapping[str, object],
        limit: float,
        left: float,
        knobs: Knobs | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Any:
        """The answer to a request, within `limit` busy seconds and `left` seconds.

        It is repeated if the worker is killed from outside; `meanwhile` is not.
        """
        if self._asking:
            raise RuntimeError("a worker is asked for one thing at a time")
        self._asking = True
        try:
            until = time.monotonic() + left
            return self._asked(request, limit, until, knobs, meanwhile)
        finally:
            self._asking = False

    def _asked(
        self,
        request: Mapping[str, object],
        limit: float,
        until: float,
        knobs: Knobs | None,
        meanwhile: Callable[[], None] | None,
    ) -> Any:
        for pause in _PAUSES:
            self._opened(pause)
            self._stage = ""
            try:
                left = min(until, self.deadline) - time.monotonic()
                about = {"wait": max(left, 0.0) / 2, "unlocked": self.unlocked}
                self._send({**request, **about})
                if meanwhile is not None:
                    done, meanwhile = meanwhile, None
                    done()
                return self._answer(limit, until, knobs)
            except Died as death:
                if not death.outside:
                    raise
                last = death
                self.stop()
        raise last

    def _spawn(self) -> None:
        opened = tempfile.TemporaryFile if self._log is None else self._log.open
        self._errors = errors = opened("ab+")
        self._said = errors.seek(0, os.SEEK_END)
        self._process = subprocess.Popen(  # noqa: S603 - our own modules
            [*_GUARD, str(os.getpid()), *_GUARD, "0", *_WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"PYTHONPATH": _import_path(), _TAG: self._tag},
            start_new_session=True,  # the tuner handles Ctrl-C
        )
        self._pending, self._stage, self._open = b"", "", False
        self.started += 1
        self._spawned = time.monotonic()

    def _opened(self, pause: float) -> None:
        """Make sure that a worker runs and has opened the workload."""
        if self._process is not None and self._open:
            return
        for more in (*_PAUSES, *_PAUSES[-1:] * _FURTHER):
            time.sleep(max(pause, more))
            if self._ended:
                raise Unavailable("the worker was ended")
            try:
                if self._process is None:
                    self._spawn()
                self._send(self._opening)
                self._answer(_START_SECONDS)
            except (Died, Silent, OSError) as problem:
                self.stop()
                last = problem
            except TuningError as problem:
                self.stop()
                raise TuningError(f"the worker could not start: {problem}") from None
            else:
                self._open = True
                self.start_seconds = time.monotonic() - self._spawned
                return
        raise Unavailable(f"the worker could not start: {last}")

    def _send(self, request: Mapping[str, object]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(protocol.encode(request))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None

    def _answer(
        self, limit: float, until: float = inf, knobs: Knobs | None = None
    ) -> object:
        assert self._process is not None
        patience = Patience(self._process.pid, limit, until)
        while True:
            message = protocol.read(self._line(patience))
            if "stage" in message:
                self._stage = str(message["stage"])
                patience.paused = self._stage in protocol.UNCOUNTED
            elif "waiting" in message:
                _LOG.warning("%s", message["waiting"])
            elif "unlocked" in message:
                self.unlocked = str(message["unlocked"])
            elif "knob" in message:
                self._send(_value(knobs, message["knob"]))
            elif "trouble" in message:
                raise Died(str(message["trouble"]), outside=True)
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
                if selector.select(wait):
                    data = os.read(descriptor, 1 << 16)
                    if not data:
                        raise self._death()
                    self._pending += data
                elif self._process.poll() is not None:  # others hold its pipe
                    raise self._death()
                elif patience.suspended:
                    said = f"the worker was suspended while {self._doing()}"
                    raise Died(said, outside=True)
                elif patience.late:
                    raise Late("no answer before the deadline")
                elif not wait:
                    raise Silent("no answer in time")
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode("utf-8", "replace")

    def _death(self) -> Died:
        """How the worker died, with the last line of its log.

        One that only closed its pipes, or is suspended, is given some seconds to end.
        """
        assert self._process is not None
        patience = Patience(self._process.pid, _END_SECONDS)
        while (code := self._process.poll()) is None:
            wait = patience.next_look()
            if not wait or patience.suspended:
                how = "was suspended" if patience.suspended else "closed its pipes"
                how = f"the worker {how} while {self._doing()}"
                return Died(how, outside=patience.suspended)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait)
        if code < 0:
            how = f"killed by {signal.Signals(-code).name}"
            if -code in (signal.SIGSEGV, signal.SIGBUS):
                how += ", as by an out-of-bounds access,"
        else:
            how = f"ended with code {code}"
        assert self._errors is not None
        self._errors.seek(self._said)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        last = f": {said[-1][:200]}" if said and code >= 0 else ""
        idle = self._open and not self._stage
        outside = idle or (code < 0 and -code not in _FAULTS)
        outside = outside or any(map(_NO_MEMORY.search, said[-3:]))
        return Died(f"{how} while {self._doing()}{last}", outside=outside)

    def _doing(self) -> str:
        if not self._open:
            return "starting"
        return _DOING.get(self._stage, "being timed")


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to all of a process's group."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, number)


def _is_group_alive(group: int) -> bool:
    """Whether any process of a group has not ended; False without /proc.

    A signal would also find those that ended and whose parent does not wait for them.
    """
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, found = stat.read_text().rpartition(")")[2].split()[:3]
            if int(found) == group and state not in "ZX":
                return True
    return False


def _kill_tagged(tag: str) -> None:
    """Kill the processes that a worker started, also those that left its group."""
    wanted = f"{_TAG}={tag}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended, or another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def _import_path() -> str:
    """The import path of this process, for the worker.

    The order is kept, so that the working directory does not shadow standard modules.
    """
    return os.pathsep.join(place or str(Path.cwd()) for place in sys.path)


def _value(knobs: Knobs | None, asked: list[Any]) -> dict[str, object]:
    """The answer to a schedule that asks for the value of a knob."""
    assert knobs is not None
    name, domain, default = asked
    try:
        value = knobs.ask(str(name), protocol.domain_from_json(domain), default)
    except ArgumentError as problem:
        return {"refused": str(problem)}
    return {"value": value}
