"""The Jinja templates that write the source: one macro a node, named after it."""
