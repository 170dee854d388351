"""Fuzz without end: `python tests/fuzz.py schedules --count 20000`.

Cases are checked in batches, each by a worker process, so that an abort or a hang is
seen and told with its case. A failing case is shrunk and printed as Python that fails
at a prompt. The exit status is 1 where anything was found.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent


def programs() -> ModuleType:
    """The package `tests/programs`, under the name that its modules import it by."""
    path = HERE / "programs" / "__init__.py"
    spec = importlib.util.spec_from_file_location("tensorlang_test_programs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main() -> int:
    options = _options()
    if options.batch is not None:
        return _batch(options)
    return _all(options)


def _options() -> argparse.Namespace:
    from_package = programs().fuzzers.NAMES
    parser = argparse.ArgumentParser(prog="fuzz.py", description=__doc__)
    parser.add_argument("what", choices=from_package, help="which fuzzer")
    parser.add_argument("--on", nargs="*", default=[], help="of schedules: the targets")
    parser.add_argument("--count", type=int, default=1000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="where to start")
    parser.add_argument("--jobs", type=int, default=2, help="workers at once")
    parser.add_argument("--batch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--apart-from", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


# ------------------------------------------------------------------------ a worker


def _batch(options: argparse.Namespace) -> int:
    """Check one batch; what was found is left in a folder."""
    package = sys.modules["tensorlang_test_programs"]
    fuzzing = package.fuzzing
    fuzzer = package.fuzzers.fuzzer(options.what, *options.on)
    if fuzzer.memory:
        resource.setrlimit(resource.RLIMIT_AS, (fuzzer.memory, fuzzer.memory))
    result: dict[str, Any] = {}

    def note(number: int, case: Any) -> None:
        following = options.batch / "next"
        following.write_text(f"{number}\n{fuzzer.code(case)}")
        following.replace(options.batch / "case")  # whole, whenever this is killed

    try:
        result["seen"] = fuzzing.search(
            fuzzer,
            options.seed,
            options.count,
            note=note,
            apart_from=options.apart_from,
        )
    except fuzzing.CaseFailedError as found:
        result["found"] = found.problem, found.code
    (options.batch / "result").write_text(json.dumps(result))
    return 0


class Worker:
    """A process that checks one batch, and the folder that it tells of it in."""

    def __init__(
        self,
        given: list[str],
        start: int,
        count: int,
        seconds: int,
        apart_from: int | None = None,
    ) -> None:
        self.given = given, start, count, seconds
        self.apart = apart_from is not None
        self.patience = seconds * (10 if self.apart else 1)
        self.folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self.place = Path(self.folder.name)
        command = [sys.executable, __file__, *given, "--batch", self.folder.name]
        command += ["--seed", str(start), "--count", str(count)]
        command += ["--apart-from", str(apart_from)] if self.apart else []
        self.log = (self.place / "log").open("w")
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=subprocess.STDOUT
        )

    @property
    def ended(self) -> bool:
        if self.process.poll() is not None:
            return True
        if time.time() - self._latest() > self.patience:
            self.process.kill()
        return False

    def _latest(self) -> float:
        """When it last went on to another case."""
        case = self.place / "case"
        return (case if case.exists() else self.place).stat().st_mtime

    def result(self) -> dict[str, Any]:
        """What came of it: `seen`, or `found`; nothing where it died."""
        self.log.close()
        told = self.place / "result"
        return json.loads(told.read_text()) if told.exists() else {}

    def last(self) -> tuple[str, str]:
        """How it died, and on which case."""
        log = (self.place / "log").read_text()[-2000:]
        return (
            f"the process ended with code {self.process.returncode}\n{log}",
            self._case()[1],
        )

    def _case(self) -> tuple[int, str]:
        """The number and the code of the case that it was at."""
        case = self.place / "case"
        number, _, code = (case.read_text() if case.exists() else "1\n").partition("\n")
        return int(number), code

    def again(self) -> Worker:
        """The same batch from there on, each case in a process of its own."""
        return Worker(*self.given, self._case()[0])


# ---------------------------------------------------------------------- the command


def _all(options: argparse.Namespace) -> int:
    what = options.what
    package = sys.modules["tensorlang_test_programs"]
    given = [what, *(["--on", *options.on] if options.on else [])]
    fuzzer = package.fuzzers.fuzzer(what, *options.on)
    seconds, size = fuzzer.seconds, fuzzer.batch
    counts = [size] * (options.count // size) + [options.count % size]
    left = [(options.seed + n, count) for n, count in enumerate(counts) if count]
    seen: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    workers: list[Worker] = []
    start = said = time.time()
    try:
        while left or workers:
            while left and len(workers) < options.jobs:
                workers.append(Worker(given, *left.pop(0), seconds))
            time.sleep(0.1)
            for worker in [w for w in workers if w.ended]:
                workers.remove(worker)
                workers += _done(worker, seen, faults)
            if time.time() - said > 60:
                said = time.time()
                print(_line(what, seen, faults, start), flush=True)
    finally:
        for worker in workers:
            worker.process.kill()
    print(_line(what, seen, faults, start))
    print(*(f"{n:8} {word}" for word, n in sorted(seen.items())), sep="\n")
    return 1 if faults else 0


def _done(worker: Worker, seen: Counter[str], faults: Counter[str]) -> list[Worker]:
    """Take in what a worker has found; the worker that looks closer, if one must."""
    result = worker.result()
    if "seen" in result:
        seen.update(result["seen"])
        return []
    if "found" not in result and not worker.apart:
        return [worker.again()]
    problem, code = result.get("found") or worker.last()
    kind = problem.partition("\n")[0][:120]
    faults[kind] += 1
    if faults[kind] == 1:
        told = problem.replace("\n", "\n# ")
        print(f"\n# {'-' * 70}\n# {told}\n{code}", flush=True)
    return []


def _line(what: str, seen: Counter[str], faults: Counter[str], start: float) -> str:
    spent = time.time() - start
    return (
        f"{what}: {seen['cases']} cases, {faults.total()} batches with a fault of "
        f"{len(faults)} kinds, {spent:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
