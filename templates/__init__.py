"""Jinja templates for generated source: one macro per node, of the same name.

`render` renders one. Compiled templates are cached as bytecode in `__pycache__`, under
the same conditions as that of modules, so that programs do not compile templates at
startup.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def render(template: str, /, **values: object) -> str:
    """Render a template; all names in it must be defined."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> jinja2.Environment:
    """The environment of all templates; imports Jinja at the first use."""
    import jinja2  # noqa: PLC0415 - only needed to build kernels

    from tensorlang.templates.bytecode import PycacheBytecode  # noqa: PLC0415

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(__path__),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=PycacheBytecode(write=not sys.dont_write_bytecode),
        autoescape=False,  # noqa: S701 - the output is not HTML
        auto_reload=False,
        keep_trailing_newline=True,
    )
