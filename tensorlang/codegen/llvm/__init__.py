"""Lowered functions as LLVM source: `render(function, target)`."""

from tensorlang.codegen.llvm.source import render

__all__ = ["render"]
