"""Static cost of GPU kernels, for tuning without a GPU."""
