"""Gradients of definitions: derivatives of expressions, adjoints of stages."""
