"""Jinja templates for generated source: one macro per node, of the same name.

`render` renders one. Compiled templates are cached as bytecode in `__pycache__`, under
the same conditions as that of modules, so that programs do not compile templates at
startup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang import lazy

if TYPE_CHECKING:
    from tensorlang.templates import environment as jinja
else:  # a warm process, whose kernels are cached, loads no Jinja
    jinja = lazy.module("tensorlang.templates.environment")


def render(template: str, /, **values: object) -> str:
    """Render a template; all names in it must be defined."""
    return jinja.environment().get_template(template).render(**values)
