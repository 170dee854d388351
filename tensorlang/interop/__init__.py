"""The operators as differentiable functions of PyTorch and JAX."""
