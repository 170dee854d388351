"""What a program may not do."""

from __future__ import annotations


class Fault(Exception):  # noqa: N818 - the field's name for it
    """Something that the PTX ISA leaves undefined, or that the machine does not know.

    `thread` is the number of the first offender in the batch, where there is one.
    """

    def __init__(self, what: str, thread: int | None = None) -> None:
        super().__init__(what)
        self.what, self.thread = what, thread
