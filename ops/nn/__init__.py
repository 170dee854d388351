"""Operators of neural networks."""
