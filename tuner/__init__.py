"""Layer 6, the tuner: Optuna search, isolated measurement, reports.

    tensorlang.tune("random.bits", budget=60)

`tuning` drives a run; `search` queries Optuna and prunes; `process` and `worker`
measure in a separate process; `gate` checks results; `storage` keeps the trials.
"""

from __future__ import annotations

from tensorlang import lazy

with lazy.names(__name__):  # Optuna is slow to import
    from tensorlang.tuner.progress import Progress, Report
    from tensorlang.tuner.tuning import tune

__all__ = ["Progress", "Report", "tune"]
