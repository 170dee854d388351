"""Sequential steps, each in a separate process with a time limit.

Output goes to OUT/log.txt while it is made, the result to one line and to
OUT/state.json, from which the same command resumes. A failed or timed-out step does not
affect others. Files are replaced atomically: a killed run leaves the previous ones, and
no process of a step outlives it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DONE, FAILED = "done", "failed"
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Step:
    """A command with a time limit.

    Attributes:
        name: The step's name, stable across runs.
        command: The command.
        limit: Seconds until it is killed.
        output: File below OUT for the last line that it prints, if any.
        again: Whether later runs repeat it.
        proof: A pattern in the output without which nothing was done.
    """

    name: str
    command: Sequence[str]
    limit: float
    output: str = ""
    again: bool = False
    proof: str = ""


@dataclass
class Run:
    """A run of steps.

    Attributes:
        out: The output folder.
        limit: Seconds for all steps together.
        environment: The environment of the steps' processes.
        ended: Called after each step.
        reserved: Seconds that are kept for later steps.
    """

    out: Path
    limit: float
    environment: Mapping[str, str]
    ended: Callable[[], object] = bool
    reserved: float = 0.0
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        self._begun = time.monotonic()
        self._file = self.out / "state.json"
        self.state: dict[str, str] = {}
        if self._file.exists():
            self.state = json.loads(self._file.read_text())

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return self.limit - (time.monotonic() - self._begun)

    def run(self, step: Step) -> bool:
        """Run a step unless it was done; return whether it is done now."""
        if self.state.get(step.name) == DONE and not step.again:
            print(f"{step.name}: done before", flush=True)
            return True
        limit = min(step.limit, self.left - self.reserved)
        if limit <= 1:
            return self._told(step, "no time left", 0.0)
        begun = time.monotonic()
        said, problem = self._ended(step, limit)
        if not problem and not re.search(step.proof, said):
            problem = f"FAILED, not {step.proof!r}: {_last(said)[:200]}"
        if not problem and step.output:
            problem = self._kept(step, said)
        return self._told(step, problem, time.monotonic() - begun)

    def _ended(self, step: Step, limit: float) -> tuple[str, str]:
        """The output of the step's process, and its error."""
        path = self.out / "log.txt"
        with path.open("ab") as log:
            log.write(f"\n===== {step.name}: {' '.join(step.command)}\n".encode())
            log.flush()
            begin = log.tell()
            process = subprocess.Popen(  # noqa: S603 - our own arguments
                step.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(self.environment),
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - single-threaded
            )
        problem = ""
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            problem = f"not done after {limit:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said = path.read_bytes()[begin:].decode(errors="replace")
        return said, problem or _problem(process.returncode, said)

    def _kept(self, step: Step, said: str) -> str:
        """Store the last line, which is JSON; return the error, if any."""
        last = _last(said)
        try:
            json.loads(last)
        except ValueError:
            return f"no result in its last line: {last[:80]}"
        replace(self.out / step.output, last + "\n")
        return ""

    def _told(self, step: Step, problem: str, seconds: float) -> bool:
        self.state[step.name] = FAILED if problem else DONE
        replace(self._file, json.dumps(self.state, indent=1) + "\n")
        if problem:
            self.failed.append(step.name)
        print(f"{step.name}: {problem or 'done'} ({seconds:.0f} s)", flush=True)
        self.ended()
        return not problem


def replace(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.replace(path)


def _end_with_parent() -> None:
    """Have Linux kill this process with its parent."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _problem(code: int, said: str) -> str:
    """The error of a process, from its last line; else empty."""
    if code == 0:
        return ""
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"FAILED, {how}: {_last(said)[:200] or 'it said nothing'}"


def _last(said: str) -> str:
    """The last line of an output, which may be empty."""
    return (said.strip().splitlines() or [""])[-1]


def python(*arguments: str) -> list[str]:
    """A command of this Python in isolation from the current directory."""
    return [sys.executable, "-P", *arguments]
