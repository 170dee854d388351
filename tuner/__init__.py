"""Floor 6, the tuner: Optuna search, isolated measuring, reports."""
