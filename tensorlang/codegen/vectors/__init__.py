"""Vectorized loops as vector expressions that a processor has."""
