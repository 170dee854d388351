"""A finished search as a study of Optuna: importance of its knobs, and plots."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import optuna

from tensorlang import lazy
from tensorlang.errors import ArgumentError
from tensorlang.tuner.landscapes.landscape import Landscape

with lazy.modules(__name__):  # only plots need it
    import matplotlib as mpl


def importances(landscape: Landscape) -> dict[str, float]:
    """How much each knob of the best algorithm matters, by Optuna's PED-ANOVA; sum 1.

    Empty if too few configurations were timed.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The number of trials is too small")
        try:
            found = optuna.importance.get_param_importances(
                to_study(landscape.of_best()), evaluator=_evaluator()
            )
        except (ValueError, RuntimeError, UserWarning):
            return {}
    return {name: float(share) for name, share in found.items()}


def to_study(landscape: Landscape) -> optuna.Study:
    """The search as a study of Optuna, with the same parameters for all trials."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="minimize", study_name=landscape.name)
    table = landscape.table()
    domains = {
        name: optuna.distributions.CategoricalDistribution(values)
        for name, values in table.columns.items()
    }
    states = optuna.trial.TrialState
    for settings, outcome in table.rows:
        study.add_trial(
            optuna.trial.create_trial(
                state=states.COMPLETE if outcome.ok else states.PRUNED,
                value=outcome.seconds if outcome.ok else None,
                params=settings,
                distributions=domains,
            )
        )
    return study


@contextmanager
def _experimental() -> Iterator[None]:
    """Without Optuna's warnings that these functions may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def _evaluator() -> optuna.importance.BaseImportanceEvaluator:
    with _experimental():
        return optuna.importance.PedAnovaImportanceEvaluator()


def plot(landscape: Landscape, folder: Path) -> list[Path]:
    """Draw Optuna's plots of a search: its history, and the parameters' importance.

    Raises:
        ArgumentError: Matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise ArgumentError("plots need Matplotlib: pip install matplotlib")
    mpl.use("Agg")
    shown = optuna.visualization.matplotlib
    whole, best = to_study(landscape), to_study(landscape.of_best())
    folder.mkdir(parents=True, exist_ok=True)
    with _experimental():
        drawn = {"history.png": shown.plot_optimization_history(whole)}
        if importances(landscape):
            axes = shown.plot_param_importances(best, evaluator=_evaluator())
            drawn["importance.png"] = axes
    for name, axes in drawn.items():
        axes.figure.savefig(folder / name, bbox_inches="tight")
    return [folder / name for name in drawn]
