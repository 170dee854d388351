"""Convolutions on a CPU, their gradients, and windows."""
