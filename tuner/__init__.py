"""Layer 6, the tuner: Optuna search, isolated measurement, reports.

    tensorlang.tune("random.bits", budget=60)

`tuning` drives a run; `search` queries Optuna and prunes; `process` and `worker`
measure in a separate process; `gate` checks results; `storage` keeps the trials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang import lazy

if TYPE_CHECKING:
    from tensorlang.tuner.progress import Progress, Report
    from tensorlang.tuner.tuning import tune
else:  # Optuna is slow to import
    __getattr__, __dir__ = lazy.namespace(
        __name__, {"progress": ("Progress", "Report"), "tuning": ("tune",)}
    )

__all__ = ["Progress", "Report", "tune"]
