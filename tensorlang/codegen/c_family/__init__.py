"""Lowered functions as OpenCL C and CUDA C: `render.render(function, target)`."""
