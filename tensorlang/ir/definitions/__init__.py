"""Definitions in tensor-expression style, and what they are assembled from."""
