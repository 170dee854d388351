"""The worker: builds, checks and times candidates in an expendable process.

Started as `python -m tensorlang.tuner.workers`, never from the user's main. It
reads requests from standard input and answers on standard output; output of kernels
and libraries goes to standard error.
"""

from __future__ import annotations

import contextlib
import operator
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import inf
from typing import Any, Final, TextIO

from tensorlang import lazy, targets
from tensorlang.errors import (
    ArgumentError,
    DeviceError,
    OperatorError,
    ScheduleError,
    TensorlangError,
    TuningError,
)
from tensorlang.ir.digest import digest
from tensorlang.ir.nodes import Function
from tensorlang.ops import find
from tensorlang.ops.kernels import building
from tensorlang.ops.spec.examples import arguments
from tensorlang.runtime import Kernel, build, processes
from tensorlang.runtime.building import file_build
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.knobs import Domain, Value
from tensorlang.tuner import disk_space
from tensorlang.tuner.correctness.gate import Gates, Wrong
from tensorlang.tuner.correctness.reference import Case
from tensorlang.tuner.measurement import measuring_lock
from tensorlang.tuner.measurement.processor_load import Load
from tensorlang.tuner.measurement.timers import Timer, timer_of
from tensorlang.tuner.search.pruning import overrun
from tensorlang.tuner.workers import guard, memory, protocol
from tensorlang.tuner.workers.protocol import (
    EXPECT,
    FAILED,
    ILLEGAL,
    OK,
    WAIT,
    WRONG,
    Candidate,
    Disturbed,
    Outcome,
)
from tensorlang.tuner.workers.scheduler import LocalScheduler, Scheduled
from tensorlang.workload import Workload

with lazy.modules(__name__):  # for GPUs that are not here
    from tensorlang.tuner.static import cost

Send = Callable[[Mapping[str, object]], None]
Ask = Callable[[Mapping[str, object]], Mapping[str, Any]]
_LOST_DEVICE: Final = 71  # exit code after losing the device


class Session:
    """One operator and workload: expected results and kernels built so far."""

    def __init__(self, request: Mapping[str, Any], send: Send, ask: Ask) -> None:
        self._send, self._ask = send, ask
        self._op = find(str(request["operator"]))
        self._workload = Workload.from_json(request["workload"])
        self._target = targets.get(str(request["target"]))
        self._static = bool(request.get("static"))
        if self._workload.threads:
            self._target = self._target.with_threads(self._workload.threads)
        self._scheduler = LocalScheduler(self._op, self._workload, self._target)
        self._gates = Gates(self._op, self._workload)
        self._kernels: dict[str, Kernel] = {}
        self._arguments: list[object] = []
        self._same: dict[tuple[str, Workload], bool] = {}
        self.unlocked = ""  # why the device was not waited for before

    def schedule(self, algorithm: str) -> Scheduled:
        """Run the schedule of an algorithm with the tuner's knobs.

        Raises:
            TuningError: the system gives too little memory.
        """
        self._send({"stage": "schedule"})
        try:
            with memory.limited() as most, _not_twice():
                return self._scheduler.schedule(algorithm, _AskedKnobs(self._ask))
        except MemoryError:
            if not most or memory.is_limited():  # by now
                raise Disturbed("the system gives too little memory") from None
            said = f"its schedule takes more than {most >> 20} MiB of memory"
            return Scheduled(outcome=Outcome(FAILED, said))

    def predict(
        self, algorithm: str, settings: Sequence[Mapping[str, Value]]
    ) -> list[float]:
        """The times that the cost model predicts."""
        self._send({"stage": "predict"})
        return self._scheduler.predict(algorithm, settings)

    def prepare(self, candidate: Candidate) -> None:
        """Put the kernels of a candidate into the cache, and run none of them."""
        self._send({"stage": "build"})
        file_build(self._scheduled(candidate, self._workload), self._target)
        for case in self._gates.of(candidate.algorithm).small:
            if not self._serves(candidate.algorithm, case.workload):
                file_build(self._scheduled(candidate, case.workload), self._target)

    def attempt(self, candidate: Candidate, best: float, wait: float = inf) -> Outcome:
        """Build, check and time a candidate; only once if much slower than the best.

        A kernel that spills registers is neither checked nor timed if a correct one is
        known. A static session only estimates. It waits for the device for `wait`
        seconds at most.
        """
        spent: dict[str, float] = {}
        try:
            with self._stage("build", spent):
                kernel, func = self._built(candidate, self._workload)
                ir = digest(func)
                why = overrun(kernel) if best else ""
            if why:
                return Outcome(ILLEGAL, why, ir=ir, spent=spent)
            if self._static:
                with self._stage("estimate", spent):
                    guess = cost.static_cost(kernel, self._op, self._workload)
                return Outcome(OK, "", guess.seconds, ir=ir, spent=spent)
            with self._stage(EXPECT, spent):
                cases = self._cases(candidate, func)
            with self._stage("check", spent):
                error = self._checked(candidate, kernel, cases)
        except Wrong as verdict:
            return Outcome(WRONG, str(verdict), spent=spent)
        except (TuningError, OSError, MemoryError):  # not its fault
            raise
        except Exception as problem:
            _end_if_lost(problem)
            _log(candidate)
            if trouble := _disk_trouble():
                raise Disturbed(trouble) from problem
            return Outcome(FAILED, described(problem), spent=spent)
        self._kernels[candidate.key] = kernel
        call = _call(kernel, self._given())
        with self._alone(spent, wait), self._stage("measure", spent):
            timing = self._timer.once(call, best)
        return Outcome(OK, "", timing.median, timing.spread, error, ir, spent)

    def finals(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Time candidates that are still correct, interleaved.

        Returns:
            `samples` by candidate, `failed`: why the others were not timed, and
            `disturbed`: what other programs did meanwhile.
        """
        calls: dict[str, Callable[[], object]] = {}
        failed: dict[str, str] = {}
        for item in request["candidates"]:
            candidate = Candidate(str(item["algorithm"]), item["knobs"])
            try:
                kernel = self._kernels.get(candidate.key)
                if kernel is None:  # built by an earlier worker
                    with self._stage("build", {}):
                        kernel, func = self._built(candidate, self._workload)
                    if not request.get("checked"):
                        with self._stage(EXPECT, {}):
                            cases = self._cases(candidate, func)
                        with self._stage("check", {}):
                            self._checked(candidate, kernel, cases)
                    self._kernels[candidate.key] = kernel
                calls[candidate.key] = _call(kernel, self._given())
            except (Wrong, TensorlangError) as problem:
                _end_if_lost(problem)
                if trouble := _disk_trouble():
                    raise Disturbed(trouble) from problem
                failed[candidate.key] = str(problem)
        with self._alone({}, float(request["wait"])), self._stage("measure", {}):
            load = Load()
            timings = self._timer.against(calls, int(request["rounds"]))
            disturbed = load.trouble(self._workload.threads or 1)
        return {
            "samples": {key: list(timing.samples) for key, timing in timings.items()},
            "failed": failed,
            "measured": self._timer.measured(timings.values()),
            "disturbed": disturbed,
        }

    @contextmanager
    def _alone(self, spent: dict[str, float], wait: float) -> Iterator[None]:
        """Hold the device's measuring lock; tell the tuner why, if it is not held."""
        with contextlib.ExitStack() as stack:
            with self._stage(WAIT, spent):
                held = measuring_lock.held(
                    self._target,
                    wait,
                    lambda said: self._send({"waiting": said}),
                    self.unlocked,
                )
                if why := stack.enter_context(held):
                    self._send({"unlocked": why})
            yield

    @contextmanager
    def _stage(self, name: str, spent: dict[str, float]) -> Iterator[None]:
        self._send({"stage": name})
        start = time.perf_counter()
        spent[name] = 0.0
        try:
            yield
        finally:
            spent[name] = time.perf_counter() - start

    def _built(
        self, candidate: Candidate, workload: Workload
    ) -> tuple[Kernel, Function]:
        made = self._scheduled(candidate, workload)
        return build(made, self._target), made.function

    def _scheduled(self, candidate: Candidate, workload: Workload) -> Schedule:
        recent = self._scheduler.recent.get(candidate.key)
        if workload is self._workload and recent is not None:
            return recent
        knobs = Knobs.replay(candidate.knobs)
        with _not_twice():
            return building.schedule(
                self._op, workload, self._target, candidate.algorithm, knobs
            )

    def _cases(self, candidate: Candidate, func: Function) -> list[Case]:
        """What is checked, with expected results; they take long the first time."""
        gate = self._gates.of(candidate.algorithm)
        return [*gate.small, gate.full, *gate.beyond(func)]

    def _checked(
        self, candidate: Candidate, kernel: Kernel, cases: Sequence[Case]
    ) -> float:
        gate = self._gates.of(candidate.algorithm)
        kernels: dict[Workload, Kernel | None] = {self._workload: kernel}
        worst = 0.0
        for case in cases:
            of = case.workload
            if of not in kernels:
                serves = self._serves(candidate.algorithm, of)
                kernels[of] = kernel if serves else self._small(candidate, of)
            if (fitting := kernels[of]) is not None:
                worst = max(worst, gate.check(fitting, case))
        return worst

    def _serves(self, algorithm: str, other: Workload) -> bool:
        """Whether one build serves another workload too: the functions are equal."""
        key = algorithm, other
        if key not in self._same:
            made = (self._op.function(w, algorithm) for w in (self._workload, other))
            try:
                self._same[key] = operator.eq(*made)
            except OperatorError:  # the algorithm does not support these shapes
                self._same[key] = False
        return self._same[key]

    def _small(self, candidate: Candidate, workload: Workload) -> Kernel | None:
        """A kernel for another shape; None if these knobs do not fit it."""
        try:
            return self._built(candidate, workload)[0]
        except (ScheduleError, ArgumentError, OperatorError):
            return None

    @cached_property
    def _timer(self) -> Timer:
        return timer_of(self._target)

    def _given(self) -> list[object]:
        if not self._arguments:
            arrays, scalars = arguments(self._op, self._workload, seed=2)
            self._arguments = self._timer.arguments([*arrays, *scalars])
        return self._arguments


@contextmanager
def _not_twice() -> Iterator[None]:
    """End processes that a schedule function forks when it returns in them, too.

    They would go on as this one does, and check kernels in the memory that they share.
    """
    worker = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != worker:
            os._exit(0)


def described(problem: BaseException) -> str:
    """An exception in a line, with its type if it is not one of ours."""
    said = " ".join(str(problem).split())[:400]
    if isinstance(problem, TensorlangError):
        return said
    return f"{type(problem).__name__}: {said}" if said else type(problem).__name__


def _end_if_lost(problem: BaseException) -> None:
    """Exit if the GPU can no longer be used; the tuner starts another worker."""
    if isinstance(problem, DeviceError) and problem.lost:
        print(described(problem), file=sys.stderr, flush=True)  # noqa: T201 - the log
        os._exit(_LOST_DEVICE)


def _log(what: object) -> None:
    """Write the traceback of a problem to the log, under a header, if it takes it."""
    with contextlib.suppress(OSError):
        print(f"\n{what}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)  # noqa: T201


def _disk_trouble() -> str:
    """Why compilers may have failed for reasons of the disk; else empty."""
    refused = disk_space.refusal()
    return f"the disk takes no files: {refused.strerror}" if refused else ""


def _call(kernel: Kernel, given: list[object]) -> Callable[[], object]:
    return lambda: kernel.launch(*given)


class _AskedKnobs(Knobs):
    """Knobs whose values the tuner knows."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._tell = ask

    def _value(self, name: str, domain: Domain, default: Value) -> Value:
        asked = [name, protocol.domain_to_json(domain), default]
        answer = self._tell({"knob": asked})
        if "refused" in answer:
            raise ArgumentError(str(answer["refused"]))
        value: Value = answer["value"]
        return value


def serve(requests: Iterator[str], send: Send) -> None:
    """Answer requests until the stream ends."""

    def ask(message: Mapping[str, object]) -> Mapping[str, Any]:
        send(message)
        return protocol.read(next(requests))

    session: Session | None = None
    for line in requests:
        request = protocol.read(line)
        try:
            if request["do"] == "open":
                session = Session(request, send, ask)
                send({"answer": "opened"})
            elif session is None:
                send({"error": "no session is open"})
            else:
                session.unlocked = str(request.get("unlocked", ""))
                answer = _answer(session, request)
                guard.end_children(apart=processes.running())
                send({"answer": answer})
        except Exception as problem:  # noqa: BLE001 - reported to the tuner
            _end_if_lost(problem)
            _log(request["do"])
            disturbed = isinstance(problem, (Disturbed, OSError, MemoryError))
            send({"trouble" if disturbed else "error": described(problem)})


def _answer(session: Session, request: Mapping[str, Any]) -> object:
    """The answer to a request of an open session."""
    if request["do"] == "schedule":
        return session.schedule(str(request["algorithm"])).to_json()
    if request["do"] == "predict":
        return session.predict(str(request["algorithm"]), request["settings"])
    if request["do"] == "finals":
        return session.finals(request)
    candidate = Candidate(str(request["algorithm"]), request["knobs"])
    if request["do"] == "prepare":
        session.prepare(candidate)
        return None
    best, wait = float(request["best"]), float(request["wait"])
    return session.attempt(candidate, best, wait).to_json()


def _lines_until_the_end(requests: TextIO) -> Iterator[str]:
    """The tuner's lines; when they end, exit at once, whatever is running.

    The tuner holds the other end, which closes even after `kill -9`; a candidate that
    never ends must not outlive it.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in requests:
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield waiting.get()


def main() -> None:
    """Serve on standard input and output, which nothing else may use."""
    guard.inherit_orphans()
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    answers, worker = os.dup(1), os.getpid()
    os.dup2(2, 1)

    def send(message: Mapping[str, object]) -> None:
        if os.getpid() != worker:
            os._exit(0)  # a candidate has forked it
        rest = protocol.encode(message)
        while rest:
            rest = rest[os.write(answers, rest) :]

    serve(_lines_until_the_end(requests), send)
