"""The search of a workload, for the explorer's page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tensorlang import lazy
from tensorlang.errors import TuningError
from tensorlang.explorer.search import Search, search_of

with lazy.modules(__name__):  # Optuna is slow to import
    from tensorlang.tuner.landscapes import landscape as landscapes
    from tensorlang.tuner.landscapes import plots
    from tensorlang.tuner.storage import databases, studies

if TYPE_CHECKING:
    from tensorlang.ops import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Workload


def of(
    op: Operator, workload: Workload, target: Target, given: str | None
) -> Search | None:
    """A search from a file, or that of a workload in a storage; None if there is none.

    Raises:
        RecordError, TuningError: the file or storage that was given cannot be read.
    """
    if given is not None and Path(given).is_file():
        found = landscapes.read(Path(given))
        return search_of(found, plots.importances(found))
    url = given or databases.default_url()
    wanted = replace(workload, threads=target.threads)
    rows = [
        trial.row
        for study in studies.every(url)
        if study.about
        and (study.about.workload, study.about.device) == (wanted, target.fingerprint)
        for trial in studies.trials(url, study)
        if trial.row is not None and trial.told
    ]
    try:
        found = landscapes.Landscape.of(
            op.described(workload), target.fingerprint, rows
        )
    except TuningError:  # nothing was timed
        return None
    return search_of(found, plots.importances(found))
