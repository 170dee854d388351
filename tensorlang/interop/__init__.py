"""Our operators in other systems, differentiable there: PyTorch and JAX."""
