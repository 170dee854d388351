"""A built kernel: callable, with its source, IR, assembly and resources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

import numpy as np

from tensorlang import lazy
from tensorlang.errors import ArgumentError, DeviceMemoryError, KernelError
from tensorlang.frozen import frozen
from tensorlang.notebooks import LANGUAGES, card
from tensorlang.once import cached_property
from tensorlang.runtime.arrays import host_arrays as arrays
from tensorlang.runtime.arrays.outputs import output_maker
from tensorlang.runtime.signature import Signature
from tensorlang.targets import Target

with lazy.modules(__name__):  # a call needs none of these
    from tensorlang.ir import cost as costs
    from tensorlang.ir.text import parser
    from tensorlang.runtime import describing

if TYPE_CHECKING:
    from tensorlang.ir import nodes
    from tensorlang.ir.cost import Cost
    from tensorlang.runtime.arrays.device_arrays import PlacedArray


@frozen
class Artifact:
    """The result of building, as plain data that can be cached on disk.

    `object_code` is machine code; `wrapper_code` calls it (the call wrapper on the
    host; for a device the host program as JSON, and its launcher). `ir` is the text of
    the function, `lowered` of the lowered function, `source` the generated source,
    `trace` the schedule's steps, `knobs` the schedule's knob values, `seconds` the time
    of each build stage.
    """

    signature: Signature
    object_code: bytes
    wrapper_code: bytes
    ir: str = ""
    lowered: str = ""
    source: str = ""
    trace: str = ""
    knobs: Mapping[str, object] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


class Kernel(ABC):
    """A function compiled for a target and loaded.

    Call it with its buffers in order, then its free scalars: `kernel(x, w, y)`. Arrays
    are written in place, and the `out` ones returned. Leave the `out` buffers away to
    have them allocated as arrays of the first argument's library: `y = kernel(x, w)`;
    or name them: `kernel(x, w, out=y)`. A scalar that only the shape of a fresh output
    determines is passed by name.

    Arrays may come from NumPy, or from anything in host memory that supports DLPack or
    NumPy's array interface; only non-contiguous arrays, and inputs that overlap an
    output, are copied.

    Attributes:
        name: Name of the function.
        target: The target it was built for.
        signature: Buffers and scalars, in calling order.
        launch: The fastest call: all buffers and free scalars by position, no result.
        each: For kernels that update flat arrays in place: the same with a tuple of
            arrays (of any shapes) per buffer, in one launch. Returns False, with
            nothing done, if they do not qualify or overlap.

    Raises (when called):
        ArgumentError, DTypeError, ShapeError: invalid arguments.
        KernelError: one of the kernel's own checks failed, e.g. an index out of range.
    """

    out_of_memory: ClassVar[int] = -1  # the fault code for it

    def __init__(self, artifact: Artifact, target: Target) -> None:
        self.name: Final = artifact.signature.name
        self.target: Final = target
        self.signature: Final = artifact.signature
        self.artifact: Final = artifact
        signature = artifact.signature
        self.launch: Callable[..., object] = self._slow
        self.each: Callable[..., bool] = never
        self._arity: Final = len(signature.buffers) + len(signature.free)
        self._written = itemgetter(*signature.outs) if signature.outs else _nothing
        self._only_out = signature.outs[0] if len(signature.outs) == 1 else None
        self._free: Final = tuple(scalar.name for scalar in signature.free)
        self._make = output_maker(signature)

    def __call__(self, *args: object, out: object = None, **scalars: object) -> object:
        """Run; returns the `out` arrays: one, a tuple, or None."""
        missing = self._arity - len(args)
        if missing == 0 and out is None and not scalars:
            self.launch(*args)
            return self._written(args)
        at = self._only_out
        if missing != 1 or at is None or scalars or type(out) is tuple:
            return self._general(args, out, scalars)
        if out is not None:
            self.launch(*args[:at], out, *args[at:])
            return out
        (fresh,) = self._make(args, scalars)
        self.launch(*args[:at], fresh, *args[at:])
        return self._as_callers(args, fresh)

    def __repr__(self) -> str:
        return f"<Kernel {self.signature} for {self.target.name}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: knobs and resources, the IR, trace and source."""
        made = self.artifact
        listings = [
            ("IR", "python", made.ir),
            ("steps of the schedule", "python", made.trace),
            ("source", LANGUAGES[self.target.kind], made.source),
        ]
        facts = {"target": self.target, **made.knobs, **self.resources}
        return card(
            f"kernel {self.signature}", facts, [each for each in listings if each[2]]
        )

    # ------------------------------------------------------------ description

    @property
    def source(self) -> str:
        """Generated source: LLVM IR, OpenCL C or CUDA C++."""
        return self.artifact.source

    @property
    def trace(self) -> str:
        """The schedule's steps, one per line; empty if there is no trace."""
        return self.artifact.trace

    @cached_property
    def ir(self) -> nodes.Function:
        """The function that was built."""
        return parser.parse(self.artifact.ir)

    @cached_property
    def nests(self) -> tuple[str, ...]:
        """The consecutive loop nests, one line each."""
        return describing.nests(self.ir)

    @cached_property
    def lowered(self) -> nodes.Function:
        """The lowered function that `source` was printed from."""
        return parser.parse(self.artifact.lowered)

    @property
    @abstractmethod
    def asm(self) -> str:
        """Disassembly of the machine code.

        Raises:
            TargetError: the device does not expose it.
        """

    @property
    @abstractmethod
    def resources(self) -> Mapping[str, int]:
        """Resources that the kernel uses, by name: bytes, instructions, ..."""

    @cached_property
    def cost(self) -> Cost:
        """Operations and bytes moved by a run, counted from the IR."""
        return costs.cost(self.ir)

    # ------------------------------------------------------------- the calls

    @abstractmethod
    def _slow(self, *args: object) -> None:
        """Slow path of a call, for all valid arguments."""

    def _fault(self, code: int) -> NoReturn:
        if code == self.out_of_memory:
            raise DeviceMemoryError(f"{self.name}: out of memory for its temporaries")
        error = KernelError(
            f"{self.name} reported fault {code}: a check on its data failed"
        )
        error.code = code
        raise error

    def _general(
        self, args: tuple[object, ...], out: object, named: Mapping[str, object]
    ) -> arrays.Foreign:
        """A call with any number of outputs, or with scalars by name."""
        self._check_names(named)
        outputs = self._make(args, named) if out is None else self._given(out)
        count = len(self.signature.buffers) - len(self.signature.outs)
        complete = list(args[:count])
        for position, output in zip(self.signature.outs, outputs, strict=True):
            complete.insert(position, output)
        complete.extend(args[count:])
        rest = self._free[max(0, len(args) - count) :]
        self.launch(*complete, *(named[name] for name in rest if name in named))
        if out is not None:
            return out
        made = [self._as_callers(args, output) for output in outputs]
        return tuple(made) if len(made) > 1 else next(iter(made), None)

    def _as_callers(
        self, args: tuple[object, ...], fresh: PlacedArray
    ) -> arrays.Foreign:
        """A fresh output as an array of the first argument's library."""
        if not args or type(args[0]) is np.ndarray:
            return fresh
        return arrays.as_kind(fresh, arrays.kind_of(args[0]))

    def _given(self, out: object) -> tuple[arrays.Foreign, ...]:
        given = out if isinstance(out, tuple) else (out,)
        if len(given) != len(self.signature.outs):
            raise ArgumentError(
                f"{self.name} has {len(self.signature.outs)} outputs, "
                f"got {len(given)} in out="
            )
        return given

    def _check_names(self, named: Mapping[str, object]) -> None:
        known = [scalar.name for scalar in self.signature.scalars]
        for name in named:
            if name not in known:
                raise ArgumentError(
                    f"{self.name} has no scalar {name!r}; "
                    f"it has {', '.join(known) or 'none'}"
                )


def _nothing(_args: object) -> None:
    return None


def never(*_args: object) -> bool:
    """An `each` that accepts nothing."""
    return False
