"""Run this folder's setup.py with extension sources compiled in parallel.

    python build_in_parallel.py bdist_wheel

setuptools compiles them sequentially; PyCUDA has fifty.
"""

from __future__ import annotations

import os
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any


def compile_at_once(  # noqa: PLR0917 - distutils' signature
    self: Any,
    sources: list[str],
    output_dir: str | None = None,
    macros: Any = None,
    include_dirs: Any = None,
    debug: bool = False,
    extra_preargs: Any = None,
    extra_postargs: Any = None,
    depends: Any = None,
) -> list[str]:
    """Like `CCompiler.compile`, with one process per source."""
    macros, objects, extra_postargs, options, build = self._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs
    )
    flags = self._get_cc_args(options, debug, extra_preargs)

    def one(name: str) -> None:
        source, kind = build[name]
        self._compile(name, source, kind, flags, extra_postargs, options)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, build))
    return list(objects)


if __name__ == "__main__":
    import_module("setuptools")  # imported first, as it provides distutils
    import_module("distutils.ccompiler").CCompiler.compile = compile_at_once
    sys.path.insert(0, str(Path.cwd()))
    sys.argv[0] = "setup.py"
    runpy.run_path("setup.py", run_name="__main__")
