"""The Jinja templates that write the source: one macro a node, named after it.

`render` prints one. A template is compiled once: its bytecode lies beside it, where and
when Python keeps the bytecode of a module there too, so that a program which builds
kernels does not start by compiling templates.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def render(template: str, /, **values: object) -> str:
    """The text of a template, every name in which must be given."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> jinja2.Environment:
    """The one environment of all templates; Jinja is loaded at the first use."""
    import jinja2  # noqa: PLC0415 - a program that builds nothing renders nothing

    from tensorlang.templates.bytecode import Beside  # noqa: PLC0415 - loads Jinja

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(__path__),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=Beside(write=not sys.dont_write_bytecode),
        autoescape=False,  # noqa: S701 - LLVM IR is no HTML
        auto_reload=False,
        keep_trailing_newline=True,
    )
