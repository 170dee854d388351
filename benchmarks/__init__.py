"""Benchmarks against other libraries; `make bench` runs them all."""
