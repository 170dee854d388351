"""Lowering to plain loops, and the renderers that hand them to templates."""
