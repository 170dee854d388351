"""The Jinja environment of all templates."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.runtime import Context

from tensorlang.templates.bytecode import PycacheBytecode


class _Plain(Context):
    """Templates call functions as they are: none of ours asks for the context.

    Jinja would look for such a wish at every call, of which a kernel has thousands.
    """

    def call(
        self,
        function: Callable[..., Any],
        /,
        *args: object,
        _loop_vars: object = None,
        _block_vars: object = None,
        **options: object,
    ) -> object:
        """The function's result; Jinja adds the variables of loops and blocks."""
        return function(*args, **options)


@cache
def environment() -> jinja2.Environment:
    """The environment of all templates."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=PycacheBytecode(write=not sys.dont_write_bytecode),
        autoescape=False,  # noqa: S701 - the output is not HTML
        auto_reload=False,
        keep_trailing_newline=True,
    )
    made.context_class = _Plain
    return made
