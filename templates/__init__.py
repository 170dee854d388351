"""Jinja templates for generated source: one macro per node, of the same name.

`render` renders one. Compiled templates are cached as bytecode in `__pycache__`, under
the same conditions as that of modules, so that programs do not compile templates at
startup.
"""

from __future__ import annotations

from tensorlang import lazy

with lazy.modules(__name__):  # a warm process, whose kernels are cached, loads no Jinja
    from tensorlang.templates import environment as jinja


def render(template: str, /, **values: object) -> str:
    """Render a template; all names in it must be defined."""
    return jinja.environment().get_template(template).render(**values)
