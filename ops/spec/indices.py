"""Error messages for out-of-range indices in arrays, which kernels detect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorlang import runtime
from tensorlang.errors import KernelError
from tensorlang.frozen import frozen


@frozen(eq=False)
class Explained:
    """A launch that explains a fault reported by its kernel."""

    kernel: Callable[..., Any]  # launch
    id: str  # operator's id
    # maps the kernel's arguments to a sentence, or an empty string
    says: Callable[[Sequence[Any]], str]

    def __call__(self, *args: object) -> None:
        """Launch; KernelError if an argument holds an invalid value."""
        try:
            self.kernel(*args)
        except KernelError as error:
            said = self.says(args)
            if not said:
                raise
            made = KernelError(f"{self.id}: {said}")
            made.code = error.code
            raise made from None


def outside(position: int) -> Callable[[Sequence[Any]], str]:
    """The explanation for argument `position`: indices of rows of the next argument."""

    def says(args: Sequence[Any]) -> str:
        given = runtime.foreign_arrays.as_placed(args[position], "indices")
        indices = runtime.device_arrays.on_host(given)
        rows = args[position + 1].shape[0]
        wrong = indices[(indices < 0) | (indices >= rows)]
        if not wrong.size:
            return ""
        return (
            f"an index is {wrong[0]}, and what it indexes has {rows} rows, counted "
            f"from 0 ({wrong.size} are out of range)"
        )

    return says
