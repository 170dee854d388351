"""`python -m benchmarks.gpu`: benchmarks of a machine with a CUDA GPU."""
