"""Floor 6, the tuner: Optuna search, isolated measuring, reports.

    tensorlang.tune("random.bits", budget=60)

`tuning` is the run; `search` asks Optuna and prunes; `process` and `worker` measure in
a process of their own; `gate` lets nothing wrong through; `storage` keeps the trials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorlang.tuner.progress import Progress, Report
    from tensorlang.tuner.tuning import tune

__all__ = ["Progress", "Report", "tune"]


def __getattr__(name: str) -> object:
    if name == "tune":
        from tensorlang.tuner.tuning import tune  # noqa: PLC0415 - loads much

        return tune
    if name in ("Progress", "Report"):
        from tensorlang.tuner import progress  # noqa: PLC0415 - rarely asked for

        return getattr(progress, name)
    raise AttributeError(f"module 'tensorlang.tuner' has no attribute {name!r}")
