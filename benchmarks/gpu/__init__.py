"""`python -m benchmarks.gpu`: everything that a machine with a CUDA GPU is asked."""
