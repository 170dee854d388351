"""Operators: a name, one definition as loops, algorithms, calls that find a kernel.

A definition in tensor-expression style becomes an operator by decoration, in the
library or in a user's own module:

    @operator("my.scaled_sum")
    def scaled_sum(x, y, *, scale=1.0):
        return compute(x.shape, lambda i: scale * x[i] + y[i])

    scaled_sum(a, b, scale=2.0)         # NumPy, torch or JAX arrays on the CPU
    scaled_sum.shape((8,), (8,))        # (8,): from the definition, no data

Positional parameters are arrays, keyword parameters are attributes of the workload.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tensorlang import lazy
from tensorlang.errors import OperatorError, TensorlangError
from tensorlang.forking import FIRST_CALLS
from tensorlang.ops import registry
from tensorlang.ops.algorithms import DIRECT, Algorithm, Define
from tensorlang.ops.declarations import NOTHING, Declarations
from tensorlang.ops.dispatch import Foreign, Late, Nowhere, overloaded, takes_over

if TYPE_CHECKING:
    from tensorlang.ir import cost as costs
    from tensorlang.ir.cost import Cost
    from tensorlang.ir.nodes import Function
    from tensorlang.ops import building
    from tensorlang.ops.signature import Parameter, Spec
    from tensorlang.runtime import Kernel as BuiltKernel
    from tensorlang.targets import Target
    from tensorlang.workload import Workload
else:  # these load the compiler
    building = lazy.module("tensorlang.ops.building")
    costs = lazy.module("tensorlang.ir.cost")

Kernel: TypeAlias = Callable[..., Any]
# a kernel, its arguments, and the operator's result
Launch: TypeAlias = tuple[Kernel, tuple[Any, ...], Any]
Front: TypeAlias = Callable[..., Launch]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]


class Operator(ABC):
    """A named operator: callable on arrays, with an interface for tools.

    Attributes:
        id: The canonical id, such as `random.bits`.
        aliases: Other names of the operator; by default the last part of its id, for
            operators of the library.
        family: The group that is tuned together, such as `threefry`.
        scheduled_as: The name its schedules are registered under; usually the family.
        algorithms: The algorithms by name; `direct` is the definition itself.
        declared: The declared conditions on sizes and values of inputs.
        prefers: Gives the algorithm for a workload without a tuning record.
        onnx: The name of the equivalent ONNX operator, for import and export.
        view: Gives the shape of a result that may share memory with the first array.
        shorthand: Converts sizes as given on the command line, such as MxNxK for a
            matrix product, to the shapes of the arrays.
    """

    view: Callable[..., tuple[int, ...]] | None = None

    def __init__(
        self,
        id: str,
        define: Define,
        front: Front,
        *,
        aliases: tuple[str, ...] | None = None,
        family: str = "",
        scheduled_as: str | None = None,
        tolerance: float = 0.0,
        declared: Declarations = NOTHING,
        shorthand: Callable[[Shapes], Shapes] | None = None,
        prefers: Callable[[Workload], str] | None = None,
        body: Callable[..., object],
        module: str = "",
        onnx: str = "",
    ) -> None:
        self.id = id
        self.family = family
        self.scheduled_as = family if scheduled_as is None else scheduled_as
        self.algorithms: dict[str, Algorithm] = {
            DIRECT: Algorithm(DIRECT, define, tolerance=tolerance)
        }
        self.onnx = onnx
        self.kernels: dict[Any, Any] = {}
        self._launches: dict[Kernel, Kernel] = {}
        self._front = front
        self.declared = declared
        self.prefers = prefers or _direct
        self.shorthand = shorthand or _as_given
        self.__name__ = id.rpartition(".")[2]
        self.__wrapped__ = body
        # no module: made by exec()
        self.module = module or self.__wrapped__.__module__ or "__main__"
        usual = (self.__name__,) if self.in_library else ()
        self.aliases = usual if aliases is None else aliases
        registry.register(self)

    @property
    def in_library(self) -> bool:
        """Whether it is defined in the library, not by a user."""
        return self.module.startswith("tensorlang.")

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """The parameters of the operator, other than `target` and `out`."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of a call."""

    @property
    @abstractmethod
    def usual_shapes(self) -> Shapes:
        """The shapes of the default workload."""

    @property
    @abstractmethod
    def default(self) -> Workload:
        """The workload used if no shapes are given."""

    @property
    @abstractmethod
    def dtypes(self) -> tuple[str, ...]:
        """The supported element types; empty if any type is accepted."""

    @property
    @abstractmethod
    def inplace(self) -> bool:
        """Whether it updates arrays in place."""

    def inlined(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        """The expression for a call inside a definition, on placeholders.

        Raises:
            OperatorError: the operator is not elementwise.
        """
        del args, kwargs
        raise OperatorError(
            f"{self.id} takes arrays, and a definition has placeholders; write the "
            "definition with tensorlang.ir, or combine operators in tensorlang.graph"
        )

    @abstractmethod
    def derived(self) -> Operator | None:
        """The gradient operator, if it is derived."""

    def __call__(self, *args: object, out: object = None, **kwargs: object) -> Any:
        """Compute on arrays; an argument with `__tensorlang_op__` takes over."""
        front = self._front if self.kernels else self._first
        try:
            if out is not None and not kwargs and len(args) == 2:
                # fast path of the most frequent calls: forwarding dictionaries costs
                # as much as the kernel of a small array
                kernel, arguments, result = front(args[0], args[1], out=out)
            else:
                if out is not None:
                    kwargs["out"] = out
                kernel, arguments, result = front(*args, **kwargs)
        except (Foreign, TypeError, TensorlangError) as problem:
            if isinstance(problem, Foreign) or takes_over(*args, *kwargs.values()):
                if out is not None:
                    kwargs["out"] = out
                return overloaded(self, args, kwargs)
            if isinstance(problem, TypeError):
                self.refuse(args, kwargs, problem)
            raise
        kernel(*arguments)
        if out is not None:
            return result
        kind = type(result)
        if kind is Late:
            return result.settle()
        if kind is tuple:
            return tuple(v.settle() if type(v) is Late else v for v in result)
        return result

    @abstractmethod
    def refuse(
        self, args: tuple[object, ...], kwargs: Mapping[str, object], problem: TypeError
    ) -> None:
        """Raise a precise error if a call's arguments do not match its signature.

        Raises:
            ArgumentError: one is missing, or unknown to the operator.
            TargetError: the target cannot be part of a cache key.
        """

    def _first(self, *args: object, **kwargs: object) -> Launch:
        with FIRST_CALLS:  # a fork during an import would deadlock the child
            return self._front(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<operator {self.id}>"

    def prepare(self, *args: object, **kwargs: object) -> Launch:
        """The launch of a call, without running it: kernel, arguments and result.

        Calling the kernel with the arguments fills the result. It may be repeated, and
        reads the current contents of the arrays each time.
        """
        front = self._front if self.kernels else self._first
        try:
            return front(*args, **kwargs)
        except TypeError as problem:
            self.refuse(args, kwargs, problem)
            raise

    def kernel(self, *args: Any, **kwargs: Any) -> Kernel:
        """The kernel that a call with these arguments would run; consumes no key."""
        spare = [value.clone() if _is_key(value) else value for value in args]
        named = {k: v.clone() if _is_key(v) else v for k, v in kwargs.items()}
        found = self._front(*spare, **named)[0]
        inner = getattr(found, "kernel", found)
        return self._launches.get(inner, inner)

    @abstractmethod
    def workload(
        self,
        *shapes: tuple[int, ...],
        dtypes: tuple[str, ...] | str | None = None,
        threads: int = 0,
        **attributes: object,
    ) -> Workload:
        """The workload of these shapes; all else defaults to the default workload's."""

    @abstractmethod
    def told(self, workload: Workload) -> str:
        """The workload as text."""

    @abstractmethod
    def names(self, workload: Workload) -> tuple[tuple[str | None, ...], ...]:
        """The name of each dimension of each array; None if it is a constant."""

    @abstractmethod
    def sizes(self, workload: Workload) -> dict[str, int]:
        """The values of symbolic sizes by name."""

    @abstractmethod
    def scalars(self, workload: Workload) -> Mapping[str, Any]:
        """Typical values of other kernel scalars by name, for measuring."""

    def function(self, workload: Workload, algorithm: str = DIRECT) -> Function:
        """The unscheduled IR of an algorithm for a workload.

        Raises:
            OperatorError: there is no such algorithm, or it cannot compute this.
            ShapeError: the sizes do not meet the operator's declared condition.
        """
        self.declared.check(workload)
        chosen = self.algorithms.get(algorithm)
        if chosen is None:
            raise OperatorError(
                f"{self.id} has no algorithm {algorithm!r}; "
                f"it has {', '.join(self.algorithms)}"
            )
        if not chosen.serves(workload):
            raise OperatorError(f"{self.id}: {algorithm} does not serve {workload}")
        return chosen.define(workload)

    @abstractmethod
    def shape(self, *shapes: tuple[int, ...], **attributes: object) -> Any:
        """The shape of the result for input shapes; several results give a tuple."""

    def cost(self, *shapes: tuple[int, ...], **attributes: Any) -> Cost:
        """The operations and bytes of a call, as expressions in the symbolic sizes."""
        return costs.cost(self.function(self.workload(*shapes, **attributes)))

    def flops(self, *shapes: tuple[int, ...], **attributes: object) -> int:
        """The number of floating-point operations of one call."""
        return self._costs(*shapes, **attributes)[0]

    def bytes(self, *shapes: tuple[int, ...], **attributes: object) -> int:
        """The minimum memory traffic of one call, in bytes read and written."""
        counts = self._costs(*shapes, **attributes)
        return counts[2] + counts[3]

    def _costs(
        self, *shapes: tuple[int, ...], **attributes: Any
    ) -> tuple[int, int, int, int]:
        sizes = self.sizes(self.workload(*shapes, **attributes))
        return self.cost(*shapes, **attributes).at(sizes)

    def built(self, launch: Kernel) -> Any:
        """The kernel of a launch of this operator; None for any other launch."""
        return self._launches.get(launch)

    def forget(self) -> None:
        """Clear the kernel cache, so that the next calls look up records again."""
        self.kernels.clear()

    def build(
        self, workload: Workload, target: Target | str | None = None
    ) -> BuiltKernel:
        """The best known kernel for a workload, built or from a cache."""
        if isinstance(target, Nowhere):
            return target.built(self, workload)
        made = building.build(self, workload, target)
        self._launches[made.launch] = made
        return made


def _is_key(value: object) -> bool:
    return hasattr(value, "clone") and hasattr(value, "fold")


def _as_given(shapes: Shapes) -> Shapes:
    return shapes


def _direct(_: Workload) -> str:
    return DIRECT
