"""Search spaces for threads of a device: what each family's nests are bound to."""

from tensorlang.schedules.simt import generic, random, rows

__all__ = ["generic", "random", "rows"]
