"""Simplification that preserves semantics."""
