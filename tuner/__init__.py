"""Layer 6, the tuner: Optuna search, isolated measurement, reports.

    tensorlang.tune("random.bits", budget=60)

`tuning` drives a run; `search` queries Optuna and prunes; `process` and `worker`
measure in a separate process; `gate` checks results; `storage` keeps the trials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorlang.tuner.progress import Progress, Report
    from tensorlang.tuner.tuning import tune

__all__ = ["Progress", "Report", "tune"]


def __getattr__(name: str) -> object:
    if name == "tune":
        from tensorlang.tuner.tuning import tune  # noqa: PLC0415 - heavy

        return tune
    if name in ("Progress", "Report"):
        from tensorlang.tuner import progress  # noqa: PLC0415 - rarely needed

        return getattr(progress, name)
    raise AttributeError(f"module 'tensorlang.tuner' has no attribute {name!r}")
