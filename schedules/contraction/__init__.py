"""Contractions on a CPU: dense layers, matrix products, their gradients."""
