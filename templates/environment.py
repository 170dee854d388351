"""The Jinja environment of all templates."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import jinja2

from tensorlang.templates.bytecode import PycacheBytecode


@cache
def environment() -> jinja2.Environment:
    """The environment of all templates."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=PycacheBytecode(write=not sys.dont_write_bytecode),
        autoescape=False,  # noqa: S701 - the output is not HTML
        auto_reload=False,
        keep_trailing_newline=True,
    )
