"""Measurement: timers, interleaved rounds, one measurement at a time."""
