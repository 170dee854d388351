"""The worker: builds, checks and times candidates, in a process that may die.

Started as `python -m tensorlang.tuner.worker`, never from the user's main. It reads
requests from standard input and answers on standard output; anything that kernels or
libraries print goes to standard error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tensorlang import targets
from tensorlang.errors import TensorlangError
from tensorlang.ir.digest import digest
from tensorlang.ops import building, find
from tensorlang.ops.examples import arguments
from tensorlang.runtime import Kernel, build
from tensorlang.scheduling import Knobs
from tensorlang.tuner import protocol
from tensorlang.tuner.gate import Gate, Wrong
from tensorlang.tuner.protocol import FAILED, ILLEGAL, OK, WRONG, Candidate, Outcome
from tensorlang.tuner.rounds import interleaved
from tensorlang.workload import Workload

Send = Callable[[Mapping[str, Any]], None]


class Session:
    """One operator and workload: its expected results and the kernels built so far."""

    def __init__(self, request: Mapping[str, Any], send: Send) -> None:
        self._send = send
        self._op = find(str(request["operator"]))
        self._workload = Workload.from_json(request["workload"])
        self._target = targets.get(str(request["target"]))
        if self._workload.threads:
            self._target = self._target.with_threads(self._workload.threads)
        self._gates: dict[float, Gate] = {}
        self._kernels: dict[str, Kernel] = {}
        self._arguments: list[Any] = []

    def attempt(self, candidate: Candidate) -> Outcome:
        """Build it, check it, time it."""
        spent: dict[str, float] = {}
        try:
            with self._stage("build", spent):
                kernel, ir = self._built(candidate, self._workload)
            with self._stage("check", spent):
                error = self._checked(candidate, kernel)
        except Wrong as verdict:
            return Outcome(WRONG, str(verdict), spent=spent)
        except TensorlangError as problem:
            built = "check" in spent
            return Outcome(FAILED if built else ILLEGAL, str(problem), spent=spent)
        self._kernels[candidate.key] = kernel
        with self._stage("measure", spent):
            timing = interleaved(
                {"it": lambda: kernel.launch(*self._given())},
                rounds=7,
                min_sample=0.003,
                warm_up=0.01,
            )["it"]
        return Outcome(OK, "", timing.median, timing.spread, error, ir, spent)

    def finals(self, request: Mapping[str, Any]) -> dict[str, list[float]]:
        """Time several candidates that are right against each other, interleaved."""
        calls: dict[str, Callable[[], object]] = {}
        for item in request["candidates"]:
            candidate = Candidate(str(item["algorithm"]), item["knobs"])
            kernel = self._kernels.get(candidate.key)
            if kernel is None:  # built by a worker before this one
                kernel, _ = self._built(candidate, self._workload)
                self._checked(candidate, kernel)
                self._kernels[candidate.key] = kernel
            calls[candidate.key] = _call(kernel, self._given())
        timings = interleaved(calls, rounds=int(request["rounds"]), min_sample=0.003)
        return {key: list(timing.samples) for key, timing in timings.items()}

    @contextmanager
    def _stage(self, name: str, spent: dict[str, float]) -> Iterator[None]:
        self._send({"stage": name})
        start = time.perf_counter()
        spent[name] = 0.0
        try:
            yield
        finally:
            spent[name] = time.perf_counter() - start

    def _built(self, candidate: Candidate, workload: Workload) -> tuple[Kernel, str]:
        knobs = Knobs.replay(candidate.knobs)
        made = building.schedule(
            self._op, workload, self._target, candidate.algorithm, knobs
        )
        return build(made, self._target), digest(made.function)

    def _checked(self, candidate: Candidate, kernel: Kernel) -> float:
        reference = self._op.algorithms["direct"].tolerance
        tolerance = max(reference, self._op.algorithms[candidate.algorithm].tolerance)
        gate = self._gates.get(tolerance)
        if gate is None:
            gate = self._gates[tolerance] = Gate(self._op, self._workload, tolerance)
        worst = 0.0
        for case in gate.small:
            fitting = kernel
            if not _symbolic(kernel):
                fitting, _ = self._built(candidate, case.workload)
            worst = max(worst, gate.check(fitting, case))
        return max(worst, gate.check(kernel, gate.full))

    def _given(self) -> list[Any]:
        if not self._arguments:
            arrays, scalars = arguments(self._op, self._workload, seed=2)
            self._arguments = [*arrays, *scalars]
        return self._arguments


def _call(kernel: Kernel, given: list[Any]) -> Callable[[], object]:
    return lambda: kernel.launch(*given)


def _symbolic(kernel: Kernel) -> bool:
    """Whether one build serves all shapes."""
    dims = (dim for spec in kernel.signature.buffers for dim in spec.shape)
    return any(not isinstance(dim, int) for dim in dims)


def serve(requests: Any, send: Send) -> None:
    """Answer requests until their stream ends."""
    session: Session | None = None
    for line in requests:
        request = protocol.read(line)
        try:
            if request["do"] == "open":
                session = Session(request, send)
                send({"answer": "opened"})
            elif session is None:
                send({"error": "no session is open"})
            elif request["do"] == "attempt":
                candidate = Candidate(str(request["algorithm"]), request["knobs"])
                send({"answer": session.attempt(candidate).to_json()})
            else:
                send({"answer": session.finals(request)})
        except (TensorlangError, Wrong, MemoryError, OSError) as problem:
            send({"error": f"{type(problem).__name__}: {problem}"})


def main() -> None:
    """Serve on standard input and output; nothing else may write there."""
    answers = os.dup(1)
    os.dup2(2, 1)

    def send(message: Mapping[str, Any]) -> None:
        rest = protocol.encode(message)
        while rest:
            rest = rest[os.write(answers, rest) :]

    serve(sys.stdin, send)


if __name__ == "__main__":
    main()
