"""From a call to its kernel: tracing, canonical form, workload, build."""
