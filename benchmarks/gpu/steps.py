"""Steps, each in a separate process with a time limit, one by one or side by side.

Output goes to a file in OUT while it is made, and then to the end of OUT/log.txt, the
result to one line and to OUT/state.json, from which the same command resumes. A failed
or timed-out step does not affect others. Files are replaced atomically: a killed run
leaves the previous ones, and no process of a step outlives it.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DONE, FAILED = "done", "failed"
_WIDTH = 200
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
        tells: A pattern with a group, which is printed for each match in the output.
    """

    name: str
    command: Sequence[str]
    limit: float
    output: str = ""
    again: bool = False
    proof: str = ""
    tells: str = ""


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
        return self.run_all([step])

    def run_all(self, steps: Iterable[Step]) -> bool:
        """Run those steps that were not done side by side; return whether all are."""
        running = []
        try:
            for step in steps:
                if self.state.get(step.name) == DONE and not step.again:
                    print(f"{step.name}: done before", flush=True)
                    continue
                running.append(_Running(step, self._limit(step), self))
            ended = [self._ended(each) for each in running]
            return all(ended)
        finally:
            for each in running:
                each.kill()

    def _limit(self, step: Step) -> float:
        """The seconds that a step has from now on."""
        return min(step.limit, self.left - self.reserved)

    def _ended(self, running: _Running) -> bool:
        """Wait for a step's process, and keep what it said."""
        step = running.step
        said, problem = running.waited()
        told = re.findall(step.tells, said) if step.tells else ()
        for line in dict.fromkeys(told):
            print(f"  {line[:_WIDTH]}", flush=True)
        if not problem and not re.search(step.proof, said):
            problem = f"FAILED, not {step.proof!r}: {_last(said)[:200]}"
        if not problem and step.output:
            problem = self._kept(step, said)
        return self._told(step, problem, running.seconds)

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


class _Running:
    """A step's process, if there is time for one.

    It writes to a file of its own in OUT, which is moved to the end of OUT/log.txt.
    """

    def __init__(self, step: Step, limit: float, of: Run) -> None:
        self.step, self._limit, self._log = step, limit, of.out / "log.txt"
        plain = re.sub(r"\W+", "_", step.name)
        self._path = of.out / f"{plain}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = time.monotonic()
        if limit > 1:
            with self._path.open("wb") as log:
                self._process = subprocess.Popen(  # noqa: S603 - our own arguments
                    step.command,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(of.environment),
                    start_new_session=True,
                    preexec_fn=_end_with_parent,  # noqa: PLW1509 - single-threaded
                )

    @property
    def seconds(self) -> float:
        """Seconds since the process was started."""
        return time.monotonic() - self._begun if self._process else 0.0

    def waited(self) -> tuple[str, str]:
        """The output of the process, which has ended or is ended, and its error."""
        if self._process is None:
            return "", "no time left"
        problem = ""
        try:
            self._process.wait(max(0.0, self._limit - self.seconds))
        except subprocess.TimeoutExpired:
            problem = f"not done after {self._limit:.0f} s"
        self.kill()
        said = self._path.read_bytes()
        with self._log.open("ab") as log:
            command = " ".join(self.step.command)
            log.write(f"\n===== {self.step.name}: {command}\n".encode() + said)
        self._path.unlink()
        told = said.decode(errors="replace")
        return told, problem or _problem(self._process.returncode, told)

    def kill(self) -> None:
        """End the process and its children, if it still runs."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


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
