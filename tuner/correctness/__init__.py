"""Correctness of candidates: references, tolerances, special and ragged inputs."""
