"""IR as text: the printer and the parser, which read each other."""
