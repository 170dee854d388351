"""Tuners that share a search: how much faster they are, and what the database takes.

    python -m benchmarks.shared_search tuners --tuners 4 --seeds 5
    python -m benchmarks.shared_search tuners --landscape search.jsonl --near 1.1
    python -m benchmarks.shared_search outage --seconds 60
    python -m benchmarks.shared_search load --tuners 1000 --rows 1000000

Devices are simulated: a measurement is a sleep, and a time that follows from the knobs,
or that a finished search has, of any format of `tlang replay`.
Without a URL, a PostgreSQL server of its own is started for it, as for the tests.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import runpy
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy as copy_of
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any, Final

import typer

from tensorlang import targets
from tensorlang.ir.definitions.frontend import compute
from tensorlang.ops import operator
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.knobs import Integer, Value
from tensorlang.tuner.landscapes import landscape as landscapes
from tensorlang.tuner.search.search import Search
from tensorlang.tuner.search.space import Space
from tensorlang.tuner.storage import databases, studies
from tensorlang.tuner.storage.rows import Row, parameter
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.workers.protocol import ILLEGAL, LOST, OK, Candidate, Outcome
from tensorlang.tuner.workers.scheduler import Scheduled

FAMILY: Final = "shared_search"
SIZES: Final = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
CHUNKS: Final = [1, 3, 5, 7, 9]
GOAL: Final = {"a": 16, "b": 64, "c": 5}
BEST: Final = 1e-3  # seconds at the goal
NEAR: Final = 1.02  # of the best time: the quality that is waited for
WHOLE: Final = 0.0  # a quality that only the end of the space ends
NUMBERS: Final = Integer(0, 1 << 30)

app = typer.Typer(add_completion=False)
Url = Annotated[str, typer.Argument(metavar="[URL]", help="Default: its own server.")]
SERVERS: Final = Path(__file__).parents[1] / "tests" / "postgresql" / "conftest.py"


@operator("shared_search.copy", family=FAMILY)
def copy(x: Any) -> Any:
    return compute(x.shape, lambda i: x[i], name="y")


@schedule(FAMILY)
def split(s: Schedule, knobs: Knobs) -> None:
    """A space of 500 points without a cost model."""
    sizes = [knobs.choice(name, SIZES) for name in "ab"]
    s.split("i", [None, *sizes, knobs.choice("c", CHUNKS)])


def seconds(knobs: Mapping[str, Value]) -> float:
    """A time with ridges, the least at `GOAL`."""
    steps = [
        abs(math.log2(int(knobs[name] or 1) / goal)) for name, goal in GOAL.items()
    ]
    ridge = 0.2 * abs(steps[0] - steps[1])
    return BEST * (1 + 0.1 * sum(steps) + ridge)


class Formula:
    """The simulated device of `copy`."""

    best = BEST

    def space(self) -> Space:
        """The space of `split`."""
        return Space(copy, copy.workload((1 << 20,), dtypes="f32"), targets.host())

    def outcome(self, knobs: Mapping[str, Value]) -> Outcome:
        """What a measurement gives."""
        return Outcome(OK, "", seconds(knobs))


class Replayed:
    """A finished search as a device, and as the schedule of its space.

    Configurations that it did not measure are refused; its first one is the default.
    """

    def __init__(self, path: Path) -> None:
        found = landscapes.read(path).of_best()
        table = found.table()
        self.best = found.best.outcome.seconds
        self._columns = table.columns
        self._outcomes = {tuple(k.values()): outcome for k, outcome in table.rows}
        self._first = table.rows[0][0]

    def space(self) -> Space:
        """The space of the search."""
        return replace(Formula().space(), scheduler=self)

    def outcome(self, knobs: Mapping[str, Value]) -> Outcome:
        """What the search measured."""
        return self._outcomes[tuple(knobs.values())]

    def schedule(self, algorithm: str, knobs: Knobs) -> Scheduled:
        """Ask for the knobs, in their order."""
        del algorithm
        for name, values in self._columns.items():
            knobs.choice(name, values, self._first[name])
        if tuple(knobs.values.values()) not in self._outcomes:
            return Scheduled(outcome=Outcome(ILLEGAL, "it was not measured"))
        return Scheduled(ir=str(knobs.values))

    def predict(
        self, algorithm: str, settings: Sequence[Mapping[str, Value]]
    ) -> list[float]:
        """There is no model."""
        del algorithm
        return [math.inf] * len(settings)


@dataclass(frozen=True, slots=True)
class Told:
    """A measurement: its code, its time, and when it was told."""

    code: str
    seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class Task:
    """What tuners are to do.

    Attributes:
        sleep: Seconds of a measurement.
        near: The quality at which they end, as a multiple of the best time.
        landscape: A finished search; None for the formula.
    """

    sleep: float = 0.1
    near: float = NEAR
    landscape: Path | None = None


def tune(url: str, study: str, seed: int, task: Task, start: Barrier) -> list[Told]:
    """Search with a simulated device: until it is good enough, or the whole space."""
    device = Replayed(task.landscape) if task.landscape else Formula()
    space = device.space()
    trials = Trials(url, study)
    search = Search(space, trials, seed)
    told = []
    start.wait()
    begun = time.monotonic()

    def over() -> bool:
        fastest = search.fastest()
        return fastest is not None and fastest <= task.near * device.best

    for suggestion in search.suggestions(over):
        if suggestion.point.outcome is not None:
            search.file(suggestion, suggestion.point.outcome)
            continue
        time.sleep(task.sleep)
        found = device.outcome(suggestion.candidate.knobs)
        search.file(suggestion, found)
        now = time.monotonic() - begun
        told.append(Told(suggestion.point.ir, found.seconds, now))
    trials.close()
    return told


def _work(results: Any, *arguments: Any) -> None:
    results.put(tune(*arguments))


def together(url: str, count: int, seed: int, task: Task) -> list[Told]:
    """What some tuners told, each in a process of its own, in the order of time."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(count), context.Queue()
    study = f"{count} tuners, seed {seed}, {time.time_ns()}"
    processes = [
        context.Process(
            target=_work,
            args=(results, url, study, seed * count + n, task, start),
            daemon=True,
        )
        for n in range(count)
    ]
    for process in processes:
        process.start()
    told = [each for _ in processes for each in results.get(timeout=600)]
    for process in processes:
        process.join()
    return sorted(told, key=lambda each: each.at)


def through_outage(
    server: Any, url: str, seconds: float, seed: int = 1
) -> tuple[list[Told], set[str]]:
    """What four tuners tell while their server is away, and the codes that it stores.

    It stops after 50 measurements, for some seconds.
    """
    before = studies.by_name(url)

    def new() -> dict[str, int]:
        found = studies.by_name(url).items()
        return {name: s.finished for name, s in found if name not in before}

    with ThreadPoolExecutor() as pool:
        running = pool.submit(together, url, 4, seed, Task(near=WHOLE))
        while sum(new().values()) < 50:
            time.sleep(0.2)
        server.stop()
        time.sleep(seconds)
        server.start()
        told = running.result()
    (study,) = new()
    stored = studies.trials(url, studies.named(url, study))
    return told, {trial.row.outcome.ir for trial in stored if trial.row}


@contextmanager
def own_server() -> Iterator[Any]:
    """A PostgreSQL server in a temporary folder."""
    servers = runpy.run_path(str(SERVERS))
    if lacking := servers["missing"]():
        raise typer.BadParameter(f"no server can be started: {lacking}")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    server = servers["Server"](servers["FOLDERS"][-1], folder)
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def database(url: str) -> Iterator[str]:
    """The URL of a database: the given one, or that of a new server."""
    if url:
        yield url
        return
    with own_server() as server:
        yield server.url


@app.command()
def tuners(
    url: Url = "",
    *,
    tuners: int = 4,
    first: int = 0,
    seeds: int = 1,
    sleep: float = 0.1,
    near: Annotated[float, typer.Option(help="End at this multiple of the best.")] = (
        NEAR
    ),
    whole: Annotated[bool, typer.Option(help="Search all of the space.")] = False,
    landscape: Annotated[
        Path | None, typer.Option(help="Replay this search in place of the formula.")
    ] = None,
) -> None:
    """Compare some tuners with one, on a space of 500 with a simulated device each.

    Each ends when it knows a time within 2 % of the best; the last line has the sums.
    """
    task = Task(sleep, WHOLE if whole else near, landscape)
    sums = {1: 0.0, tuners: 0.0}
    with database(url) as place:
        for seed in range(first, first + seeds):
            for count in (1, tuners):
                told = together(place, count, seed, task)
                sums[count] += told[-1].at
                distinct = len({each.code for each in told})
                found = {"measured": len(told), "distinct": distinct}
                print(json.dumps({"tuners": count, "seconds": told[-1].at, **found}))
    print(json.dumps({"seconds": sums, "ratio": sums[tuners] / sums[1]}), flush=True)


@app.command()
def outage(*, seconds: float = 60.0) -> None:
    """Let four tuners measure a space of 500 while their server is away for a while."""
    with own_server() as server:
        told, stored = through_outage(server, server.url, seconds)
    codes = {each.code for each in told}
    found = {"measured": len(told), "distinct": len(codes), "stored": len(stored)}
    print(json.dumps(found | {"seconds": told[-1].at, "lost": len(codes - stored)}))


def _row(number: int, status: str = OK) -> Row:
    outcome = Outcome(status, "", 1e-3, ir=f"code {number}")
    named = {parameter("direct", n, NUMBERS): (NUMBERS, number) for n in "abcde"}
    return Row.of(Candidate("direct", {"a": number}), outcome, named)


def fill(url: str, study: str, rows: int) -> None:
    """Add rows of a study as earlier tuners left them, in PostgreSQL."""
    import sqlalchemy

    engine, key = databases.connect(url, study)
    row = _row(7_777_777)
    values = [f"(n, '{name}', n, '{text}')" for name, text in row.distributions.items()]
    note = json.dumps(row.to_json()).replace("7777777", "' || n || '")
    code = json.dumps(row.outcome.ir).replace("7777777", "' || n || '")
    said = f"""
    WITH made AS (INSERT INTO trials (number, study_id, state, datetime_start)
      SELECT n, {key}, 'COMPLETE', now() FROM generate_series(0, {rows - 1}) n
      RETURNING trial_id AS n),
    notes AS (INSERT INTO trial_user_attributes (trial_id, key, value_json)
      SELECT v.* FROM made, LATERAL (VALUES
        (n, 'tensorlang', '{note}'), (n, 'tensorlang code', '{code}')) v),
    params AS (INSERT INTO trial_params
      (trial_id, param_name, param_value, distribution_json)
      SELECT v.* FROM made, LATERAL (VALUES {", ".join(values)}) v)
    INSERT INTO trial_values (trial_id, objective, value, value_type)
      SELECT n, 0, 1e-3, 'FINITE' FROM made
    """  # noqa: S608 - our own names
    with engine.begin() as connection:
        connection.exec_driver_sql(said)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sqlalchemy.text("ANALYZE"))
    engine.dispose()


class Load:
    """Simulated tuners that ask and tell as fast as they can, in threads."""

    def __init__(self) -> None:
        self.asks: list[float] = []
        self.tells: list[float] = []
        self.joined = 0.0  # seconds of a tuner's first ask
        self.trouble = ""

    def join(self, url: str, study: str, tuners: int) -> list[Trials]:
        """Some tuners that have joined a study; all of them know what the first read.

        On machines of their own, all would read at once.
        """
        shared = [Trials(url, study) for _ in range(tuners)]
        begun = time.perf_counter()
        shared[0].news()
        self.joined = time.perf_counter() - begun
        for trials in shared[1:]:
            for name in ("_last", "_next", "_partial", "unread", "_sure", "_running"):
                setattr(trials, name, copy_of(getattr(shared[0], name)))
        return shared

    def run(self, shared: list[Trials], first: int, start: Barrier) -> None:
        """Take turns with some tuners for a while."""
        number, tuners = first, len(shared)
        start.wait()
        until = time.time() + SECONDS
        while time.time() < until:
            trials = shared[number % tuners]
            begun = time.perf_counter()
            trials.news()
            trials.claim(_row(number, LOST))
            asked = time.perf_counter()
            trials.add(_row(number))
            self.asks.append(asked - begun)
            self.tells.append(time.perf_counter() - asked)
            self.trouble = self.trouble or trials.trouble
            number += 1


def _load(
    results: Any, start: Barrier, place: int, work: tuple[str, list[str], int]
) -> None:
    """Load from one process; a thread a study, whose tuners share connections."""
    url, studies, each = work
    connect, known = databases.connect, {}

    def shared(url: str, study: str, _: str = "") -> Any:
        if study not in known:
            known[study] = connect(url, study)
        return known[study]

    databases.connect = shared
    load = Load()
    joined = [load.join(url, study, each) for study in studies]
    threads = [
        threading.Thread(target=load.run, args=(some, (1 + place) << 24, start))
        for some in joined
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((load.asks, load.tells, load.joined, load.trouble))


SECONDS: Final = 10.0


@app.command()
def load(
    url: Url = "",
    *,
    tuners: int = 1000,
    rows: int = 0,
    studies: int = 1,
    processes: int = 2,
) -> None:
    """Measure asks and tells a second, and their times in milliseconds."""
    names = [f"load {n}, {time.time_ns()}" for n in range(studies)]
    with database(url) as place:
        if rows:  # of earlier tuners of the first study
            fill(place, names[0], rows)
        print(json.dumps(loaded(place, tuners, names, processes)))


def loaded(url: str, tuners: int, names: list[str], processes: int) -> dict[str, Any]:
    """What tuners of some studies do in a while."""
    context = multiprocessing.get_context("spawn")
    results, studies = context.Queue(), len(names)
    each = max(tuners // (studies * processes), 1)
    start = context.Barrier(processes * studies)
    for place in range(processes):
        arguments = results, start, place, (url, names, each)
        context.Process(target=_load, args=arguments, daemon=True).start()
    asks: list[float] = []
    tells: list[float] = []
    trouble = ""
    for _ in range(processes):
        asked, told, joined, said = results.get(timeout=600)
        asks += asked
        tells += told
        trouble = trouble or said
    return {
        "tuners": each * studies * processes,
        "first_ask_ms": 1e3 * joined,
        "asks_per_second": len(asks) / SECONDS,
        "tells_per_second": len(tells) / SECONDS,
        "ask_ms": 1e3 * median(asks),
        "ask_ms_90": 1e3 * quantiles(asks, n=10)[-1],
        "tell_ms": 1e3 * median(tells),
        "trouble": trouble,
    }


if __name__ == "__main__":
    app()
