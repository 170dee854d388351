"""Sphinx hooks: processing of docstrings and operators."""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from command_line import commands
from docstrings import literal_blocks
from operator_pages import element_types, facts, operator, public
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util.docutils import SphinxDirective

from tensorlang.ops import Operator
from tensorlang.scheduling import PRIMITIVES

if TYPE_CHECKING:
    from docutils.nodes import Element, Node
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

_FIELD: Final = type(namedtuple("_", "field").field)  # noqa: PYI024 - for its type


def docstring(
    _app: Sphinx, what: Any, name: str, obj: Any, _opts: Any, lines: list[str]
) -> None:
    """Convert Google-style sections to fields.

    Napoleon is not used because it takes text before a colon in an attribute's
    docstring for its type.
    """
    what = "object" if what in {"attribute", "data", "property"} else what
    text = list(literal_blocks(lines))
    lines[:] = GoogleDocstring(text, what=what, name=name, obj=obj).lines()


def signature(
    _app: Sphinx, what: str, _name: str, obj: Any, *_: Any
) -> tuple[str, None] | None:
    """Names and defaults of operators and named tuples; their types are in the text."""
    operator_or_tuple = isinstance(obj, Operator) or hasattr(obj, "_fields")
    if not (what in {"function", "class"} and operator_or_tuple):
        return None
    found = inspect.signature(obj)
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=found.empty)), None


def fields(_app: Sphinx, _what: str, _name: str, obj: Any, *_: Any) -> bool | None:
    """Skip the fields of named tuples, which the text of their class describes."""
    return True if isinstance(obj, _FIELD) else None


def unknown(app: Sphinx, env: BuildEnvironment, node: Element, text: Element) -> Any:
    """Resolve names in docstrings: an operator's id, or plain text if it has no page.

    Explicit references still have to resolve.
    """
    if "refwarn" in node and node["reftype"] != "obj":
        return None
    domain, name = env.domains.python_domain, f"tensorlang.ops.{node['reftarget']}"
    page = node["refdoc"]
    return domain.resolve_xref(env, page, app.builder, "obj", name, node, text) or text


def primitives() -> str:
    """Every schedule primitive, with the loops before and after."""
    functions = [PRIMITIVES[name] for name in sorted(PRIMITIVES)]
    return "\n".join(
        f".. autofunction:: {f.__module__}.{f.__name__}" for f in functions
    )


def text_of(write: Callable[..., str]) -> type[SphinxDirective]:
    """A directive for generated text, in the markup of its page."""

    class Text(SphinxDirective):
        optional_arguments = 1

        def run(self) -> list[Node]:
            text = write(*self.arguments)
            return self.parse_text_to_nodes(text, allow_section_headings=True)

    return Text


def setup(app: Sphinx) -> dict[str, bool]:
    """Register template functions, directives and docstring processing."""
    app.config.autosummary_context |= {"operator": operator, "public": public}
    app.connect("autodoc-process-docstring", docstring)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", fields)
    app.connect("missing-reference", unknown)
    app.add_directive("command-line", text_of(commands))
    app.add_directive("element-types", text_of(element_types))
    app.add_directive("operator-facts", text_of(facts))
    app.add_directive("primitives", text_of(primitives))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
