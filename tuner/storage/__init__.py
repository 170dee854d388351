"""Storage of trials: Optuna's storages, rows, and a spool for outages."""
