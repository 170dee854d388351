"""Inject faults into searches and count what must not be: `--faults 1000 --seed 0`.

A case is a search of one of 20 spaces, with good, wrong and hostile configurations.
While it runs, faults hit it, its worker and its files; a tuner that was killed is
started again. Every third case keeps its trials on a PostgreSQL server, where one can
be started, which is killed and restarted, too. Afterwards every trial that was told has
to be stored, everything stored has to be true, and nothing may be left running. The
exit status is 1 where it is not.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import user_operator

SERVERS = Path(__file__).parents[1] / "postgresql" / "conftest.py"
ON_SERVER = 3  # one case of so many
SPACES = 20
FAULTS_A_CASE = 8
BUDGET = 120  # seconds
LONGEST = 5 * BUDGET  # for a run and all that its faults make it wait for
GOOD = ("slow", "fast", "plain", "prints", "daemon", "leaves")
BAD = {
    "wrong": "wrong",
    "unwritten": "wrong",
    "segfault": "crashed",
    "illegal": "illegal",
    "raises": "failed",
    "does_not_build": "failed",
    "exits": "crashed",
    "aborts": "crashed",
    "closes": "crashed",
    "eats": "failed",
}
VIOLATIONS = (
    "told trials lost",
    "wrong records",
    "good configurations filed as failed",
    "bad configurations filed as something else",
    "processes left after 5 s",
    "runs without a report",
)
# tunes, and tells each trial and the report; the clock is ahead by what a file says
SCRIPT = """
import json, sys, time
from pathlib import Path
op, storage, size, clock, budget = sys.argv[1:]
real = time.time
time.time = lambda: real() + float(Path(clock).read_text() or 0)
time.time_ns = lambda: int(time.time() * 1e9)
from tensorlang.errors import RecordError, TuningError
from tensorlang.tuner import tune

def say(**what):
    print(json.dumps(what), flush=True)

def listen(p):
    say(way=p.last[0].knobs.get("way"), status=p.last[1].status, why=p.last[1].reason)

try:
    (report,) = tune(op, storage=storage, shapes=[(int(size),)], dtypes="u32",
                     budget=float(budget), listen=listen)
    say(best=report.best.knobs["way"], note=report.note)
except (RecordError, TuningError) as problem:
    say(refused=str(problem))
"""


class Database:
    """A PostgreSQL server for all cases; it is not away when they begin or are judged.

    Args:
        folder: A folder with a short name.
    """

    def __init__(self, folder: Path) -> None:
        spec = importlib.util.spec_from_file_location("servers", SERVERS)
        assert spec is not None
        assert spec.loader is not None
        servers = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(servers)
        self.missing = servers.missing()
        if importlib.util.find_spec("psycopg") is None:
            self.missing = "psycopg is not installed"
        if not self.missing:
            self.server = servers.Server(servers.FOLDERS[-1], folder)
            self.server.start()
        self.here = threading.Lock()

    def away(self, seconds: float, *, killed: bool) -> None:
        """End the server, and start it again after some seconds."""
        with self.here:
            self.server.kill() if killed else self.server.stop()
            time.sleep(seconds)
            while True:  # its processes may not have ended
                try:
                    self.server.start()
                except subprocess.CalledProcessError:
                    time.sleep(0.2)
                else:
                    return


@dataclass
class Case:
    """One search, its processes and files."""

    folder: Path
    number: int
    dice: random.Random
    database: Database
    told: list[dict[str, Any]] = field(default_factory=list)
    found: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    full: bool = False  # whether a disk was: what is told may be in memory alone

    def __post_init__(self) -> None:
        space = random.Random(self.number % SPACES)
        bad = space.sample(sorted(BAD), 3)
        ways = ["slow", *space.sample(GOOD[2:], 2), *bad, "fast"]
        self.op = user_operator.write(self.folder, f"case_{self.number}", ways)
        self.on_server = self.number % ON_SERVER == 2 and not self.database.missing
        self.storage = f"sqlite:///{self.folder / 'trials.db'}"
        if self.on_server:
            self.storage = self.database.server.url
        self.size = 1 << space.randint(8, 12)
        self.clock = self.folder / "clock"
        self.clock.write_text("0")
        self.environment = os.environ | {
            "PYTHONPATH": str(self.folder),
            "TENSORLANG_RECORDS": str(self.folder / "records"),
            "TENSORLANG_CACHE": str(self.folder / "cache"),
            "TENSORLANG_MACHINE": "published",
            "XDG_DATA_HOME": str(self.folder / "data"),
            "OMP_NUM_THREADS": "1",
        }

    def start(self) -> subprocess.Popen[str]:
        arguments = self.op, self.storage, self.size, self.clock, BUDGET
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *map(str, arguments)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def violates(self, what: str, how: object) -> None:
        self.found[what] += 1
        self.details.append(f"case {self.number}: {what}: {how}")


# --------------------------------------------------------------------- the processes


def living(marking: Path) -> dict[int, str]:
    """The command lines of the processes that a folder marks, such as a case's."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            text = command + (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if os.fsencode(marking) in text and state != "Z":
                found[int(folder.name)] = command.replace(b"\0", b" ").decode()
    return found


def end(marking: Path) -> None:
    """Kill the processes that a folder marks."""
    for pid in living(marking):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def process(case: Case, named: str) -> int | None:
    """The worker or its guard, if it runs."""
    ids = [
        pid for pid, command in living(case.folder).items() if _role(command) == named
    ]
    return ids[0] if ids else None


def _role(command: str) -> str:
    if "guard.py" in command:
        return "guard"
    return "worker" if "tensorlang.tuner.workers" in command else ""


# ------------------------------------------------------------------------ the faults


def _signalled(named: str) -> Callable[[Case, int], None]:
    def hit(case: Case, _: int) -> None:
        number = case.dice.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
        if pid := process(case, named):
            os.kill(pid, number)

    return hit


def _suspended(case: Case, pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(case.dice.uniform(0.1, 1.5))
    os.kill(pid, signal.SIGCONT)


def _worker_suspended(case: Case, _: int) -> None:
    if pid := process(case, "worker"):
        _suspended(case, pid)


def _worker_stopped(case: Case, _: int) -> None:
    if pid := process(case, "worker"):
        os.kill(pid, signal.SIGSTOP)  # for good


def _disk_full(case: Case, tuner: int) -> None:
    """No file grows for a while: neither records, nor database, nor caches."""
    case.full = True
    hit = [pid for pid in (tuner, process(case, "worker")) if pid]
    free = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    for limits in ((0, resource.RLIM_INFINITY), free):
        for pid in hit:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        time.sleep(case.dice.uniform(0.2, 2.0))


def _too_little_memory(case: Case, _: int) -> None:
    if pid := process(case, "worker"):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + case.dice.choice([1, 8, 64]) * (1 << 20)
        resource.prlimit(pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def _clock_jumps(case: Case, _: int) -> None:
    case.clock.write_text(str(case.dice.choice([-1e6, -3600, 0, 3600, 1e6])))


def _database_locked(case: Case, _: int) -> None:
    path = case.folder / "trials.db"
    with contextlib.suppress(sqlite3.Error):
        other = sqlite3.connect(f"file:{path}?mode=rw", uri=True)
        other.execute("BEGIN IMMEDIATE")
        time.sleep(case.dice.uniform(0.2, 4.0))
        other.close()


def _load(case: Case, _: int) -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    time.sleep(case.dice.uniform(0.5, 2.0))
    busy.kill()
    busy.wait()


def _tuner_killed(case: Case, tuner: int) -> None:
    if not case.full:
        os.kill(tuner, signal.SIGKILL)


def _server_killed(case: Case, _: int) -> None:
    case.database.away(case.dice.uniform(0.0, 6.0), killed=True)


def _server_restarted(case: Case, _: int) -> None:
    case.database.away(case.dice.uniform(0.0, 2.0), killed=False)


FAULTS: dict[str, Callable[[Case, int], None]] = {
    "tuner killed": _tuner_killed,
    "tuner suspended": _suspended,
    "worker killed": _signalled("worker"),
    "guard killed": _signalled("guard"),
    "worker suspended": _worker_suspended,
    "worker stopped": _worker_stopped,
    "disk full": _disk_full,
    "memory limited": _too_little_memory,
    "clock jumped": _clock_jumps,
    "load": _load,
}
FAULTS_OF_FILES = FAULTS | {"database locked": _database_locked}
FAULTS_OF_SERVERS = FAULTS | {
    "server killed": _server_killed,
    "server restarted": _server_restarted,
}


# ---------------------------------------------------------------------------- a case


def run(case: Case, faults: int) -> Case:
    """Search with faults until there is a report; then look at what is there."""
    left = faults
    for _ in range(faults + 2):
        with case.start() as tuner:
            while left and tuner.poll() is None:
                time.sleep(case.dice.uniform(0.0, 1.5))
                left -= _hit(case, tuner)
            out, errors = _said(case, tuner)
        heard = list(_heard(out.splitlines()))
        case.told += [line for line in heard if "way" in line]
        if tuner.returncode != -signal.SIGKILL:
            break
        _look_for_processes(case)
    if not heard or "way" in heard[-1]:
        case.violates("runs without a report", f"{tuner.returncode}: {errors}")
    elif refused := heard[-1].get("refused"):
        case.details.append(f"case {case.number} ended: {refused}")
    _look_for_processes(case)
    _look_at_rows(case)
    return case


def _said(case: Case, tuner: subprocess.Popen[str]) -> tuple[str, str]:
    """The output of a tuner, which is killed if it does not end."""
    try:
        return tuner.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        case.violates("runs without a report", f"not ended after {LONGEST} s")
        tuner.kill()
        return tuner.communicate()


def _heard(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with contextlib.suppress(ValueError):  # the tuner was killed within it
            yield json.loads(line)


def _hit(case: Case, tuner: subprocess.Popen[str]) -> bool:
    """Inject a fault; whether the tuner was still there."""
    faults = FAULTS_OF_SERVERS if case.on_server else FAULTS_OF_FILES
    name = case.dice.choice(list(faults))
    with contextlib.suppress(OSError):
        faults[name](case, tuner.pid)
        case.faults[name] += 1
        return True
    return False


def _look_for_processes(case: Case) -> None:
    looks = 50  # not a clock, which goes on while all of this is suspended
    while (left := living(case.folder)) and looks:
        time.sleep(0.1)
        looks -= 1
    if left:
        case.violates("processes left after 5 s", left)
        end(case.folder)


def _look_at_rows(case: Case) -> None:
    """Deliver what was kept, and compare what is stored with what is true."""
    with case.database.here:
        done = subprocess.run(
            [sys.executable, __file__, "--rows", case.storage, case.op, str(case.size)],
            env=case.environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        case.violates("told trials lost", f"nobody can say: {done.stderr}")
    rows = json.loads(done.stdout or "[]")
    for way, status, reason in rows:
        expected = BAD.get(way, "ok")
        if status != expected:
            what = "good configurations filed as failed"
            if way in BAD:
                what = "bad configurations filed as something else"
            case.violates(what, f"{way} {status}: {reason}")
    stored = {way for way, *_ in rows}
    for line in case.told:
        if line["status"] != "lost" and line["way"] not in stored:
            case.violates("told trials lost", line)
    for path in (case.folder / "records").rglob("*.json"):
        for record in json.loads(path.read_text())["records"]:
            if dict(record["knobs"])["way"] in BAD:
                case.violates("wrong records", record)


def _rows(storage: str, op: str, size: str) -> None:
    """Print an operator's rows in a storage, with those that were kept for it.

    The storage may have been away for all of the search, and not know its study.
    """
    from tensorlang import targets
    from tensorlang.ops import select
    from tensorlang.ops.kernels.requests import requested
    from tensorlang.tuner.storage.storage import Trials
    from tensorlang.tuner.tuning_run import Run

    (member,), host = select(op), targets.host()
    workload = requested(member, [(int(size),)], "u32", {}, threads=host.threads)
    trials = Trials(storage, Run(member, workload, host).study)
    rows = [
        (row.candidate.knobs["way"], row.outcome.status, row.outcome.reason)
        for row in trials.finished()
    ]
    trials.close()
    print(json.dumps(rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100, help="how many at least")
    parser.add_argument("--seed", type=int, default=0, help="where to start")
    parser.add_argument("--jobs", type=int, default=2, help="searches at once")
    parser.add_argument("--rows", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rows:
        _rows(*options.rows)
        return 0
    place = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    database = Database(place)
    if database.missing:
        print(f"no server is killed: {database.missing}", flush=True)

    def clear() -> None:
        if not database.missing:
            database.server.stop()
        while place.exists():  # a search that is killed is started again
            end(place)
            shutil.rmtree(place, ignore_errors=True)

    def terminated(*_: object) -> None:
        """End searches and server at once, where the server is not away."""
        with database.here:
            clear()
        os._exit(1)

    for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        signal.signal(number, terminated)
    try:
        return _inject(options, database, place)
    finally:
        clear()


def _inject(options: argparse.Namespace, database: Database, place: Path) -> int:
    """Run cases; the exit status."""
    found, faults = Counter(dict.fromkeys(VIOLATIONS, 0)), Counter[str]()

    def one(number: int) -> None:
        with tempfile.TemporaryDirectory(prefix="case-", dir=place) as folder:
            case = Case(Path(folder), number, random.Random(number), database)
            run(case, FAULTS_A_CASE)
        found.update(case.found)
        faults.update(case.faults)
        print(*case.details, sep="\n", end="\n" if case.details else "", flush=True)

    number = options.seed
    with ThreadPoolExecutor(options.jobs) as pool:
        while (left := options.faults - faults.total()) > 0:
            cases = -(-left // FAULTS_A_CASE)
            list(pool.map(one, range(number, number + cases)))
            number += cases
    for counts in (faults, found):
        print(*(f"{n:6} {what}" for what, n in sorted(counts.items())), sep="\n")
    print(f"{faults.total():6} faults, {found.total()} violations", flush=True)
    return 1 if found.total() else 0


if __name__ == "__main__":
    sys.exit(main())
