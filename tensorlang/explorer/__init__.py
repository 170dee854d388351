"""The explorer: a page that shows an operator through all stages, with linked lines."""
