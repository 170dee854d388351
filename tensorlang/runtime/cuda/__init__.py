"""NVIDIA GPUs: compilers, driver, launches, arrays."""
