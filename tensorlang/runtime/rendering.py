"""Rendering a template of `tensorlang.templates`; Jinja is loaded at the first use."""

from __future__ import annotations

from functools import cache
from typing import Any


def render_template(template: str, /, **values: object) -> str:
    """The text of a template, every name in which must be given."""
    return str(_environment().get_template(template).render(**values))


@cache
def _environment() -> Any:
    import jinja2  # noqa: PLC0415 - a warm process renders nothing

    return jinja2.Environment(
        loader=jinja2.PackageLoader("tensorlang.templates", "."),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - LLVM IR is no HTML
    )
