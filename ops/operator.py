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
# a kernel, what to call it with, and what the operator returns
Launch: TypeAlias = tuple[Kernel, tuple[Any, ...], Any]
Front: TypeAlias = Callable[..., Launch]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]

DIRECT: Final = "direct"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to compute an operator, as IR of its own.

    Attributes:
        name: Its name among the operator's algorithms.
        define: The IR function for a workload.
        serves: Whether it can compute a workload at all.
        tolerance: The relative error it may have against the reference; 0 is exact.
            Float reductions, whose order is free, may always have that of
            `tensorlang.tuner.tolerance`: (16 + 4 sqrt(terms)) machine epsilons.
        feature: What a target has that it is made for; such targets prefer it.
        finite: Whether an infinity, a NaN or a very large number among its inputs may
            spoil results that the reference makes without it.
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
    """A named operator: callable on arrays, and open to tools.

    Attributes:
        id: Canonical id, such as `random.bits`.
        aliases: Other names that find it.
        family: The group that is tuned together, such as `threefry`.
        scheduled_as: What its schedules are registered under; usually the family.
        algorithms: By name; `direct` is the definition itself.
        sizes: The values of its symbolic sizes for a workload, by name.
        scalars: Usual values of its kernels' other scalars, by name: for measuring.
        declared: What it says of the sizes and the values of its inputs.
        prefers: The algorithm for a workload of which no record is known.
        onnx: What ONNX calls the same operator, if it has that: it is written and read.
        view: The shape of a result that may share the memory of the first array.
        shorthand: From sizes as the command line takes them, such as MxNxK of a matrix
            product, to the shapes of the arrays.
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
        # none: made by exec()
        self.module = module or self.__wrapped__.__module__ or "__main__"
        if body is None:
            self.__doc__ = front.__doc__
        registry.register(self)

    @property
    def default(self) -> Workload | None:
        """The workload that stands for it where no shape is given."""
        return self._default

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The element types that it is defined for; empty where any may do."""
        return self._dtypes

    def derived(self) -> Operator | None:
        """The operator that follows from this one: its gradient, if that is derived."""
        return None

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Compute on arrays; an argument with `__tensorlang_op__` takes over."""
        front = self._front if self.kernels else self._first
        try:
            if out is not None and not kwargs and len(args) == 2:
                # most calls that must be short; passing dictionaries on costs as much
                # as the kernel of a small array
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
                _check_target(kwargs.get("target"))
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
        """Say what is wrong with arguments that are not those of a call, if they are.

        Raises:
            ArgumentError: one is missing, or none that the operator has.
        """

    def _first(self, *args: Any, **kwargs: Any) -> Launch:
        with FIRST_CALLS:  # a fork in the middle of an import would hang the child
            return self._front(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<operator {self.id}>"

    def prepare(self, *args: Any, **kwargs: Any) -> Launch:
        """The launch that a call would make, not made: for callers that repeat it.

        The kernel, called with the arguments, fills the result; any number of times,
        with whatever then stands in the memory of the arrays that were given.
        """
        front = self._front if self.kernels else self._first
        try:
            return front(*args, **kwargs)
        except TypeError as problem:
            self.refuse(args, kwargs, problem)
            raise

    def kernel(self, *args: Any, **kwargs: Any) -> Kernel:
        """The kernel that a call with these arguments would run; uses no key up."""
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
        """The workload of these shapes; the rest is the default's where not given."""
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

    def function(self, workload: Workload, algorithm: str = DIRECT) -> Function:
        """The IR of an algorithm for a workload, not scheduled.

        Raises:
            OperatorError: there is no such algorithm, or it does not serve this.
            ShapeError: the sizes do not meet what the operator declares.
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
        """The result's shape for these shapes, from the definition: a tuple each."""
        workload = self.workload(*shapes, **attributes)
        if self._result is not None:
            return self._result(workload)
        return _result_shapes(self.function(workload), self.sizes(workload))

    def cost(self, *shapes: tuple[int, ...], **attributes: Any) -> Cost:
        """Operations and bytes as expressions in the symbolic sizes."""
        from tensorlang.ir.cost import cost  # noqa: PLC0415 - not for every call

        return cost(self.function(self.workload(*shapes, **attributes)))

    def flops(self, *shapes: tuple[int, ...], **attributes: Any) -> int:
        """Floating-point operations of one call."""
        return self._costs(*shapes, **attributes)[0]

    def bytes(self, *shapes: tuple[int, ...], **attributes: Any) -> int:
        """The least bytes one call can read and write."""
        counts = self._costs(*shapes, **attributes)
        return counts[2] + counts[3]

    def _costs(
        self, *shapes: tuple[int, ...], **attributes: Any
    ) -> tuple[int, int, int, int]:
        sizes = self.sizes(self.workload(*shapes, **attributes))
        return self.cost(*shapes, **attributes).at(sizes)

    def built(self, launch: Kernel) -> Any:
        """The kernel that a launch of this operator is of; None of another's."""
        return self._launches.get(launch)

    def forget(self) -> None:
        """Look for the best kernels anew at the next calls, as after tuning."""
        self.kernels.clear()

    def build(
        self, workload: Workload, target: Target | str | None = None
    ) -> BuiltKernel:
        """The best known kernel for a workload, built or from the caches."""
        if isinstance(target, Nowhere):
            return target.built(self, workload)
        from tensorlang.ops.building import build  # noqa: PLC0415 - loads a compiler

        made = build(self, workload, target)
        self._launches[made.launch] = made
        return made


def _check_target(target: Any) -> None:
    """Say what is wrong with a target that no kernel can be known by.

    Raises:
        TargetError: it is a list, a dictionary or the like.
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
    """An operator of the library whose decorated function checks and prepares calls.

    Args:
        id: Its canonical id.
        define: From workload to IR; or `module:function`, imported at first use.
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
    """The definition at `module:function`, imported when it is first called."""
    module, _, name = place.partition(":")

    def define(workload: Workload) -> Function:
        from importlib import import_module  # noqa: PLC0415 - the point of this

        made: Function = getattr(import_module(module), name)(workload)
        return made

    return define
