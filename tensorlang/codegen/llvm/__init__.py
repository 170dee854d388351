"""Lowered functions as LLVM source: `render.render(function, target)`."""
