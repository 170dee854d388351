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

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang.errors import OperatorError, TensorlangError
from tensorlang.forking import FIRST_CALLS
from tensorlang.ops import registry
from tensorlang.ops.declarations import NOTHING, Declarations
from tensorlang.ops.dispatch import Foreign, Late, Nowhere, overloaded, takes_over
from tensorlang.workload import Workload, attributes_of

if TYPE_CHECKING:
    from inspect import Signature

    from tensorlang.ir.cost import Cost
    from tensorlang.ir.nodes import Function
    from tensorlang.runtime import Kernel as BuiltKernel
    from tensorlang.targets import Target

Define: TypeAlias = "Callable[[Workload], Function]"
Kernel: TypeAlias = Callable[..., Any]
# a kernel, its arguments, and the operator's result
Launch: TypeAlias = tuple[Kernel, tuple[Any, ...], Any]
Front: TypeAlias = Callable[..., Launch]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]

DIRECT: Final = "direct"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm of an operator, with its own IR.

    Attributes:
        name: Its name, unique within the operator.
        define: Gives the IR function for a workload.
        serves: A predicate on workloads that it can compute.
        tolerance: The allowed relative error against the reference; 0 is exact. Float
            reductions, whose order is free, are always allowed that of
            `tensorlang.tuner.tolerance`: (16 + 4 sqrt(terms)) machine epsilons.
        feature: The target feature that it is designed for; targets with it prefer it.
        finite: Whether an infinity, a NaN or a very large input may corrupt results
            that do not depend on it in the reference.
    """

    name: str
    define: Define
    serves: Callable[[Workload], bool] = field(default=lambda _: True)
    tolerance: float = 0.0
    feature: str = ""
    finite: bool = False

    def suits(self, workload: Workload, features: Collection[str]) -> bool:
        """Whether it can compute a workload, on a target with these features."""
        return (not self.feature or self.feature in features) and self.serves(workload)


class Operator:
    """A named operator: callable on arrays, with an interface for tools.

    Attributes:
        id: The canonical id, such as `random.bits`.
        aliases: Other names of the operator.
        family: The group that is tuned together, such as `threefry`.
        scheduled_as: The name its schedules are registered under; usually the family.
        algorithms: The algorithms by name; `direct` is the definition itself.
        sizes: Gives the values of symbolic sizes for a workload, by name.
        scalars: Gives typical values of other kernel scalars, by name, for measuring.
        declared: The declared conditions on sizes and values of inputs.
        prefers: Gives the algorithm for a workload without a tuning record.
        onnx: The name of the equivalent ONNX operator, for import and export.
        view: Gives the shape of a result that may share memory with the first array.
        shorthand: Converts sizes as given on the command line, such as MxNxK for a
            matrix product, to the shapes of the arrays.
    """

    view: Callable[..., tuple[int, ...]] | None = None
    __signature__: Signature  # of an operator whose front names no parameters

    def __init__(
        self,
        id: str,
        define: Define,
        front: Front,
        *,
        aliases: tuple[str, ...] = (),
        family: str = "",
        scheduled_as: str | None = None,
        default: Workload | None = None,
        dtypes: tuple[str, ...] = (),
        tolerance: float = 0.0,
        result: Callable[[Workload], Any] | None = None,
        sizes: Callable[[Workload], dict[str, int]] | None = None,
        scalars: Callable[[Workload], Mapping[str, Any]] | None = None,
        declared: Declarations = NOTHING,
        shorthand: Callable[[Shapes], Shapes] | None = None,
        prefers: Callable[[Workload], str] | None = None,
        body: Callable[..., Any] | None = None,
        module: str = "",
        onnx: str = "",
    ) -> None:
        self.id = id
        self.aliases = aliases
        self.family = family
        self.scheduled_as = family if scheduled_as is None else scheduled_as
        self.algorithms: dict[str, Algorithm] = {
            DIRECT: Algorithm(DIRECT, define, tolerance=tolerance)
        }
        self._default, self._dtypes, self.onnx = default, dtypes, onnx
        self.kernels: dict[Any, Any] = {}
        self._launches: dict[Kernel, Kernel] = {}
        self._front = front
        self._result = result
        self.sizes = sizes or _none
        self.scalars = scalars or _none
        self.declared = declared
        self.prefers = prefers or _direct
        self.shorthand = shorthand or _as_given
        self.__name__ = id.rpartition(".")[2]
        self.__wrapped__ = body or front
        # no module: made by exec()
        self.module = module or self.__wrapped__.__module__ or "__main__"
        if body is None:
            self.__doc__ = front.__doc__
        registry.register(self)

    @property
    def default(self) -> Workload | None:
        """The workload used if no shapes are given."""
        return self._default

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The supported element types; empty if any type is accepted."""
        return self._dtypes

    def inlined(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The expression for a call inside a definition, on placeholders.

        Raises:
            OperatorError: the operator is not elementwise.
        """
        del args, kwargs
        raise OperatorError(
            f"{self.id} takes arrays, and a definition has placeholders; write the "
            "definition with tensorlang.ir, or combine operators in tensorlang.graph"
        )

    @property
    def inplace(self) -> bool:
        """Whether it updates arrays in place."""
        return False

    def derived(self) -> Operator | None:
        """The gradient operator, if it is derived."""
        return None

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
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
                check_target(kwargs.get("target"))
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

    def refuse(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], problem: TypeError
    ) -> None:
        """Raise a precise error if a call's arguments do not match its signature.

        Raises:
            ArgumentError: one is missing, or unknown to the operator.
        """

    def _first(self, *args: Any, **kwargs: Any) -> Launch:
        with FIRST_CALLS:  # a fork during an import would deadlock the child
            return self._front(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<operator {self.id}>"

    def prepare(self, *args: Any, **kwargs: Any) -> Launch:
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

    def workload(
        self,
        *shapes: tuple[int, ...],
        dtypes: tuple[str, ...] | str | None = None,
        threads: int = 0,
        **attributes: Any,
    ) -> Workload:
        """The workload of these shapes; all else defaults to the default workload's."""
        default = self.default or Workload(self.id, (), ())
        shapes = tuple(tuple(map(int, shape)) for shape in shapes) or default.shapes
        if dtypes is None:
            first = default.dtypes[0] if default.dtypes else "f32"
            same = len(default.dtypes) == len(shapes)
            dtypes = default.dtypes if same else (first,) * len(shapes)
        elif isinstance(dtypes, str):
            dtypes = (dtypes,) * len(shapes)
        given = attributes_of(default.named | attributes)
        return Workload(self.id, shapes, dtypes, given, threads)

    def told(self, workload: Workload) -> str:
        """The workload as text."""
        return str(workload)

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

    def shape(self, *shapes: tuple[int, ...], **attributes: Any) -> Any:
        """The shape of the result for input shapes; several results give a tuple."""
        workload = self.workload(*shapes, **attributes)
        if self._result is not None:
            return self._result(workload)
        return _result_shapes(self.function(workload), self.sizes(workload))

    def cost(self, *shapes: tuple[int, ...], **attributes: Any) -> Cost:
        """The operations and bytes of a call, as expressions in the symbolic sizes."""
        from tensorlang.ir.cost import cost  # noqa: PLC0415 - not for every call

        return cost(self.function(self.workload(*shapes, **attributes)))

    def flops(self, *shapes: tuple[int, ...], **attributes: Any) -> int:
        """The number of floating-point operations of one call."""
        return self._costs(*shapes, **attributes)[0]

    def bytes(self, *shapes: tuple[int, ...], **attributes: Any) -> int:
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
        from tensorlang.ops.building import build  # noqa: PLC0415 - loads a compiler

        made = build(self, workload, target)
        self._launches[made.launch] = made
        return made


def check_target(target: Any) -> None:
    """Refuse a target that cannot be part of a cache key.

    Raises:
        TargetError: it is unhashable, such as a list or dictionary.
    """
    try:
        hash(target)
    except TypeError:
        from tensorlang import targets  # noqa: PLC0415 - only for a mistake

        targets.get(target)


def _is_key(value: Any) -> bool:
    return hasattr(value, "clone") and hasattr(value, "fold")


def _as_given(shapes: Shapes) -> Shapes:
    return shapes


def _direct(_: Workload) -> str:
    return DIRECT


def _none(_: Workload) -> dict[str, Any]:
    return {}


def _result_shapes(func: Function, sizes: Mapping[str, int]) -> Any:
    from tensorlang.ops.examples import shapes  # noqa: PLC0415 - not for every call

    made = shapes(func, sizes)
    results = tuple(made[p.buffer.name] for p in func.params if p.role != "in")
    return results[0] if len(results) == 1 else results


def declared(
    id: str,
    define: str | Define,
    *,
    shapes: Mapping[str, Any],
    **options: Any,
) -> Callable[[Front], Operator]:
    """Decorator: make an operator from a function that checks and prepares calls.

    Args:
        id: The canonical id.
        define: A function from workload to IR, or `module:function`, imported at first
            use.
        shapes: The default workload: `shapes`, `dtypes` and attributes.
        options: As for `Operator`.
    """
    given = dict(shapes)
    default = Workload(
        id, given.pop("shapes"), given.pop("dtypes"), attributes_of(given)
    )

    def make(front: Front) -> Operator:
        found = imported(define) if isinstance(define, str) else define
        return Operator(id, found, front, default=default, **options)

    return make


def imported(place: str) -> Define:
    """The definition at `module:function`, imported at its first call."""
    module, _, name = place.partition(":")

    def define(workload: Workload) -> Function:
        from importlib import import_module  # noqa: PLC0415 - the point of this

        made: Function = getattr(import_module(module), name)(workload)
        return made

    return define
