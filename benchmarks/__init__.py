"""Benchmarks against what a user would pick instead; `make bench` runs them all."""
