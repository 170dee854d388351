"""Where trials are kept: an Optuna storage, by default one SQLite file of the user's.

Trials are written finished, each in one transaction of a write-ahead log: `kill -9`
loses at most the one that was running, and the same command goes on from the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import RecordError, TuningError
from tensorlang.scheduling.knobs import Choice, Domain
from tensorlang.tuner.protocol import Candidate, Outcome

if TYPE_CHECKING:
    import optuna

_FILE: Final = "tuning.db"
_PASSWORD: Final = re.compile(r"(?<=://)([^/@:]*):([^/@]*)@")


def default_url() -> str:
    """The SQLite file in the user's data directory."""
    from platformdirs import user_data_path  # noqa: PLC0415 - used here only

    folder = user_data_path("tensorlang")
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / _FILE}"


def redacted(url: str) -> str:
    """A storage URL as it may be printed: without its password."""
    return _PASSWORD.sub(r"\1:***@", url)


class Trials:
    """The trials of one study: what was tried before, and what is added now.

    Raises:
        RecordError: the database cannot be used; the message names it.
        TuningError: no driver for the storage's URL is installed.
    """

    def __init__(self, url: str, study: str) -> None:
        self._url = redacted(url)
        with _named(self._url):
            self._study = _open(url, study)

    def finished(self) -> Iterator[tuple[Candidate, Outcome, Any]]:
        """What was tried before, with Optuna's row of it, oldest first."""
        with _named(self._url):
            rows = self._study.get_trials(deepcopy=False)
        for row in rows:
            attributes = row.user_attrs
            try:
                given = json.loads(attributes["candidate"])
                outcome = Outcome.from_json(json.loads(attributes["outcome"]))
                yield Candidate(str(given[0]), dict(given[1])), outcome, row
            except (KeyError, ValueError, TypeError, IndexError, TuningError):
                continue  # not a row of ours, or not a whole one: it is tried again

    def add(
        self, candidate: Candidate, outcome: Outcome, domains: Mapping[str, Domain]
    ) -> Any:
        """File a trial; returns Optuna's row of it."""
        row = row_of(candidate, outcome, domains)
        with _named(self._url):
            self._study.add_trial(row)
        return row


def row_of(
    candidate: Candidate, outcome: Outcome, domains: Mapping[str, Domain]
) -> Any:
    """A trial as Optuna holds it; what was not right counts as pruned."""
    from optuna.trial import TrialState, create_trial  # noqa: PLC0415 - it is slow

    return create_trial(
        state=TrialState.COMPLETE if outcome.ok else TrialState.PRUNED,
        value=outcome.seconds if outcome.ok else None,
        params=dict(candidate.knobs),
        distributions={name: distribution(d) for name, d in domains.items()},
        user_attrs={
            "candidate": candidate.key,
            "outcome": json.dumps(outcome.to_json()),
        },
    )


def distribution(domain: Domain) -> optuna.distributions.BaseDistribution:
    """A knob's domain as Optuna says it."""
    from optuna.distributions import (  # noqa: PLC0415 - it is slow
        CategoricalDistribution,
        IntDistribution,
    )

    if isinstance(domain, Choice):
        return CategoricalDistribution(domain.options)
    return IntDistribution(domain.low, domain.high, log=domain.log, step=domain.step)


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Errors of the database as a sentence that names it."""
    from optuna.exceptions import OptunaError  # noqa: PLC0415 - it is slow
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - it is slow

    try:
        yield
    except ImportError as problem:
        raise TuningError(
            f"storage {url} needs a driver that is not installed: {problem}"
        ) from None
    except (SQLAlchemyError, OptunaError, RuntimeError, AssertionError) as problem:
        first = (str(problem) or type(problem).__name__).splitlines()[0]
        raise RecordError(
            f"storage {url} cannot be used: {first}; mend or remove it, or name "
            "another with --storage"
        ) from problem


def _open(url: str, study: str) -> optuna.Study:
    import optuna  # noqa: PLC0415 - it is slow

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    options = {"connect_args": {"timeout": 30}} if url.startswith("sqlite") else {}
    storage = optuna.storages.RDBStorage(url, engine_kwargs=options)
    if url.startswith("sqlite"):
        _write_ahead(storage)
    return optuna.create_study(
        storage=storage, study_name=study, direction="minimize", load_if_exists=True
    )


def _write_ahead(storage: Any) -> None:
    from sqlalchemy import event  # noqa: PLC0415 - it is slow

    @event.listens_for(storage.engine, "connect")
    def configure(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    storage.engine.dispose()
