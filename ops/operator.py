"""Operators: a name, one definition as loops, algorithms, calls that find a kernel.

A definition in tensor-expression style becomes an operator by decoration, in the
library or in a user's own module:

    @operator("my.scaled_sum")
    def scaled_sum(x, y, *, scale=1.0):
        return compute(x.shape, lambda i: scale * x[i] + y[i])

    scaled_sum(a, b, scale=2.0)         # NumPy, torch or JAX arrays on the CPU
    scaled_sum.shape((8,), (8,))        # (8,): from the definition, no data

Positional parameters are arrays, keyword parameters are attributes of the workload: the
signature is the spec, and the body is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from tensorlang import ir, lazy, targets
from tensorlang.errors import OperatorError, TensorlangError
from tensorlang.forking import FIRST_CALLS
from tensorlang.once import cached_property
from tensorlang.ops import registry
from tensorlang.ops.algorithms import DIRECT, Algorithm, Define
from tensorlang.ops.calls import binding, call_signature
from tensorlang.ops.calls.dispatch import Foreign, Late, Nowhere, overloaded, takes_over
from tensorlang.ops.calls.tensors import Ready, call, check_result
from tensorlang.ops.kernels import known_results, workloads
from tensorlang.ops.kernels.known_results import Known
from tensorlang.ops.kernels.requests import checked_shapes
from tensorlang.ops.spec import signature
from tensorlang.ops.spec.declarations import NOTHING, declarations
from tensorlang.ops.spec.documentation import as_for, documented
from tensorlang.ops.spec.indices import Explained

with lazy.modules(__name__):  # these load the compiler, or stand on operators
    from tensorlang.ir import cost as costs
    from tensorlang.ops import derived_gradients
    from tensorlang.ops.kernels import building, tracing

if TYPE_CHECKING:
    import inspect

    import numpy as np

    from tensorlang.ir.cost import Cost
    from tensorlang.ops.kernels.tracing import Trace
    from tensorlang.ops.spec.signature import Parameter, Spec
    from tensorlang.runtime import Kernel as BuiltKernel
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

Kernel: TypeAlias = Callable[..., Any]
Body: TypeAlias = Callable[..., Any]
# a kernel, its arguments, and the operator's result
Launch: TypeAlias = tuple[Kernel, tuple[Any, ...], Any]
Bind: TypeAlias = Callable[..., Launch]  # from the arguments of a call
Shapes: TypeAlias = tuple[tuple[int, ...], ...]
_MOST_TRACES: Final = 64  # of one pattern
_MOST_PATTERNS: Final = 1024


class _Documentation:
    """Descriptor: the docstring of an operator, composed at first access."""

    def __init__(self, of_class: str) -> None:
        self._of_class = of_class

    def __get__(self, op: Operator | None, _: type) -> str:
        if op is None:
            return self._of_class
        said = (op.host and op.host.__doc__) or op.body.__doc__ or ""
        if not op.in_library:
            return said  # docstrings of user-defined operators are not completed
        return documented(said, op.parameters, as_for(op) | op.meanings, op.shared)


class Operator:  # noqa: D101 - it has one
    __doc__ = _Documentation("""A named definition, called on arrays and read by tools.

    Its spec is its definition's signature.

    Args:
        id: The canonical id, such as `random.bits`.
        body: The definition.
        aliases: Other names of the operator; by default the last part of its id, for
            operators of the library.
        family: The group that is tuned together, such as `threefry`.
        scheduled_as: The name its schedules are registered under; usually the family.
        tolerance: The allowed relative error of kernels against the interpreter.
        sizes: A condition on sizes; see `operator`, also for the next two.
        indices: The bounds of elements that are indices.
        samples: Prepares inputs for checking and timing.
        shapes: The shapes of the default workload.
        usual: The attributes of that workload that differ from the defaults.
        whole: Whether all sizes stay symbolic, as all accesses are known to be in
            bounds.
        host: Computes the keyword arguments of the definition, in order, from those of
            a call, before each launch: `1 - beta` in f64. If it has an optional array
            as a parameter, it returns that first, or None to leave it out. Its
            docstring, if any, is the operator's.
        meanings: Descriptions of parameters that the definition does not describe.
        missing: The numbers that replace omitted operands, as functions of the name of
            the arrays' type.
        faults: Explains a fault reported by a kernel, from the kernel's arguments.
        variants: Gives further workloads whose kernels are built with that of a
            workload, such as one row beside many, so that no later call must compile.
        instead: Other types that arrays may have, by name, each with a function that
            makes the launch of a call from all arguments by name.
        parameters_of: The operator whose parameters `**` in the definition's signature
            stands for, without those that the signature names itself.
        derive: Checks those arguments of a call that it names, and derives scalars from
            them before the kernel is looked up. It returns their description, which
            is part of the kernel, such as `"rate:u32,f32"` (see
            `tensorlang.ops.spec.signature.derived_scalars`), and the scalars.
            Parameters annotated `Derived` are passed to it only.
        measured: Arguments of `derive` to measure kernels with, for each description.
        promotes: Whether arrays may have different types, and are read in their common
            one (`tensorlang.ops.spec.promotion`).
        view: For a result that is the first array in another shape, and shares its
            memory if possible: gives that shape, from the array's shape and the
            attributes by name.
        gradient: The options of the gradient, if it is derived
            (`tensorlang.ops.derived_gradients`).
        prefers: Gives the algorithm for a workload without a tuning record.
        shorthand: Converts sizes as given on the command line, such as MxNxK for a
            matrix product, to the shapes of the arrays.
        module: The module of the definition, if its body does not tell it.
        onnx: The name of the equivalent ONNX operator, for import and export.

    Attributes:
        algorithms: The algorithms by name; `direct` is the definition itself.
        declared: The declared conditions on sizes and values of inputs.
    """)

    # what makes the launch of a call, and the keywords of all operators of this kind
    ending: ClassVar[Callable[..., Launch]] = staticmethod(call)
    shared: ClassVar[tuple[str, ...]] = ("target", "out")

    def __init_subclass__(cls) -> None:
        cls.__doc__ = _Documentation(cls.__doc__ or "")  # type: ignore[assignment]

    def __init__(
        self,
        id: str,
        body: Body,
        *,
        aliases: tuple[str, ...] | None = None,
        family: str = "",
        scheduled_as: str | None = None,
        tolerance: float = 0.0,
        sizes: str = "",
        indices: Mapping[str, str | int] | None = None,
        samples: Callable[..., object] | None = None,
        shapes: Shapes = (),
        usual: Mapping[str, object] = MappingProxyType({}),
        whole: bool = False,
        host: Callable[..., tuple[object, ...]] | None = None,
        meanings: Mapping[str, str] | None = None,
        missing: Mapping[str, Callable[[str], object]] | None = None,
        faults: Callable[[Sequence[Any]], str] | None = None,
        instead: Mapping[str, tuple[type, Callable[..., Launch]]] | None = None,
        parameters_of: Operator | None = None,
        derive: Callable[..., tuple[str, tuple[object, ...]]] | None = None,
        measured: Sequence[Mapping[str, object]] = ({},),
        promotes: bool = False,
        view: Callable[..., tuple[int, ...]] | None = None,
        variants: Callable[[Workload], Sequence[Workload]] = lambda _: (),
        gradient: Mapping[str, Any] | None = None,
        prefers: Callable[[Workload], str] | None = None,
        shorthand: Callable[[Shapes], Shapes] | None = None,
        module: str = "",
        onnx: str = "",
    ) -> None:
        self.id, self.body = id, body
        self.__name__, self.__wrapped__ = id.rpartition(".")[2], body
        self.module = module or body.__module__ or "__main__"  # none: made by exec()
        self.family = family
        self.scheduled_as = family if scheduled_as is None else scheduled_as
        self.meanings, self.missing = dict(meanings or {}), missing or {}
        self._shapes, self.usual_attributes, self.is_whole = shapes, usual, whole
        self._gradient, self.host, self.instead = gradient, host, instead or {}
        self._parameters_of = parameters_of
        self._faults, self.view, self._variants = faults, view, variants
        self.derive, self.measured, self._promotes = derive, measured, promotes
        self.prefers, self.shorthand = prefers or _direct, shorthand or _as_given
        self.onnx = onnx
        self.kernels: dict[Any, Any] = {}
        self.patterns: dict[tuple[type, ...], binding.Pattern] = {}
        self._launches: dict[Kernel, Kernel] = {}
        self._traces: dict[Hashable, list[Trace]] = {}
        self._bind: Bind = self._bound
        self.algorithms: dict[str, Algorithm] = {
            DIRECT: Algorithm(DIRECT, self.define(DIRECT), tolerance=tolerance)
        }
        self.declared = NOTHING
        if sizes or indices or samples:
            self.declared = declarations(
                id, body, self.spec, sizes, indices or {}, samples
            )
        usual_alias = (self.__name__,) if self.in_library else ()
        self.aliases = usual_alias if aliases is None else aliases
        if not self.in_library:
            assert self.parameters  # reports a faulty signature at the definition
        registry.register(self)

    @property
    def in_library(self) -> bool:
        """Whether it is defined in the library, not by a user."""
        return self.module.startswith("tensorlang.")

    @property
    def may_divide(self) -> bool:
        """Whether its kernels may be built in two parts; see `kernels.kept`."""
        return self.in_library and self._faults is None

    def __repr__(self) -> str:
        return f"<operator {self.id}>"

    # ------------------------------------------------------------------- signature

    @cached_property
    def spec(self) -> Spec:
        """The parameters of the operator, other than `target` and `out`."""
        of = self._parameters_of
        found = signature.spec(self.id, self.body, of.spec.parameters if of else ())
        return replace(found, promotes=True) if self._promotes else found

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of a call: the definition's, or its arrays plus `host`'s."""
        if self.host is None:
            return self.spec.parameters
        arrays = [p for p in self.spec.parameters if p.name in self.spec.arrays]
        asked = signature.spec(self.id, self.host).parameters
        rest = (p for p in asked if p.name not in self.spec.arrays)
        return (*arrays, *(replace(p, keyword=True) for p in rest))

    @property
    def stated(self) -> Collection[str] | None:
        """The dimensions whose sizes it states, such as `x.0`; None for all."""
        return self.declared.stated

    @property
    def inplace(self) -> bool:
        """Whether it updates arrays in place."""
        return any(kind.inplace for kind in self.spec.arrays.values())

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of a call."""
        return call_signature.call_signature(self.parameters, self.shared)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The supported element types; empty if any type is accepted."""
        kinds = (kind.dtypes for kind in self.spec.arrays.values())
        usual = (kind for kind in kinds if kind not in ((), ("bool",), ("i32", "i64")))
        return next(usual, ())

    # -------------------------------------------------------------------- gradient

    @cached_property
    def grad(self) -> Operator | None:
        """The gradient operator, if it is derived."""
        if self._gradient is not None:
            options = {"linear": True, **self._gradient}
            return derived_gradients.DerivedGradient(self, **options)
        may = not self.in_library and derived_gradients.may_derive(self)
        return derived_gradients.DerivedGradient(self, linear=False) if may else None

    def derived(self) -> Operator | None:
        """The gradient operator, if the definition declares one."""
        second = self.id.endswith("_grad")  # created on demand
        return None if second or self._gradient is None else self.grad

    # ------------------------------------------------------------------- workloads

    @property
    def usual_shapes(self) -> Shapes:
        """The shapes of the default workload."""
        return self._shapes

    @property
    def default(self) -> Workload:
        """The workload used if no shapes are given."""
        return self.workload()

    def workload(
        self,
        *shapes: tuple[int, ...],
        dtypes: tuple[str, ...] | str | None = None,
        threads: int = 0,
        **attributes: object,
    ) -> Workload:
        """The workload of arrays of these shapes; all else is as in the default one.

        The shapes of results come last, if they are parameters.

        Raises:
            ShapeError: one is no shape.
        """
        return workloads.workload(self, shapes, dtypes, threads, attributes)

    def described(self, workload: Workload) -> str:
        """The workload as text, without attributes that have their default values."""
        return workloads.described(self, workload)

    def scalars(self, workload: Workload) -> Mapping[str, Any]:
        """Typical values of the scalars by name, for measuring."""
        return workloads.scalars(self, workload)

    # ------------------------------------------------------------------ definitions

    @property
    def definition(self) -> Body:
        """The definition on tensors."""
        return self.body

    def define(self, algorithm: str, body: Body | None = None) -> Define:
        """A function from workloads to the IR of an algorithm."""

        def function(workload: Workload) -> ir.nodes.Function:
            return self.traced(workload, algorithm, body).function

        return function

    def traced(
        self, workload: Workload, algorithm: str = DIRECT, body: Body | None = None
    ) -> Trace:
        """The trace for a workload, memoised."""
        if len(self._traces) > _MOST_PATTERNS:  # bounds memory for ever new attributes
            self._traces.clear()
        named, shapes = workload.named, workload.shapes
        kinds = [self.spec.arrays.get(name) for name in self.spec.slots(named)]
        many = [
            kind.batch if kind else len(s) > 1
            for kind, s in zip(kinds, shapes, strict=False)
        ]
        many += [name == self.spec.elements for name in self.spec.listed(named)]
        batches = [at for at, open_ in enumerate(many) if open_]
        call = tracing.Call(workload.shapes, workload.dtypes, named, batches)
        known = self._traces.setdefault((algorithm, call.pattern), [])
        for made in known:
            if made.serves(call.shapes):
                return made
        made = tracing.trace(
            self.spec,
            body or self.definition,
            call,
            self.spec.read_as(call.dtypes, call.attributes),
            whole=self.is_whole,
            stated=self.stated,
        )
        if len(known) >= _MOST_TRACES:  # bounds memory for ever new sizes
            known.clear()
        known.append(made)
        return made

    def names(self, workload: Workload) -> tuple[tuple[str | None, ...], ...]:
        """The name of each dimension of each array; None if it is a constant."""
        return self.traced(workload).names

    def sizes(self, workload: Workload) -> dict[str, int]:
        """The values of symbolic sizes by name."""
        made = self.traced(workload)
        values = made.values(workload.shapes)
        return dict(zip(made.sizes, made.at(made.sizes.values(), values), strict=True))

    def function(
        self, workload: Workload, algorithm: str = DIRECT
    ) -> ir.nodes.Function:
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

    def shape(self, *shapes: tuple[int, ...], **attributes: Any) -> Any:
        """The shape of the result for input shapes; several results give a tuple."""
        workload = self.workload(*checked_shapes(shapes), **attributes)
        made = self.traced(workload)
        values = made.values(workload.shapes)
        elements = shapes[-1] if self.spec.elements and shapes else None
        results = made.shapes(values, elements)
        return results if made.several or len(results) != 1 else results[0]

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
        workload = self.workload(*shapes, **attributes)
        return costs.cost_at(self.function(workload), self.sizes(workload))

    # ----------------------------------------------------------------------- calls

    def __call__(self, *args: object, out: object = None, **kwargs: object) -> Any:
        """Compute on arrays; an argument with `__tensorlang_op__` takes over."""
        bind = self._bind if self.kernels else self._first
        try:
            if out is not None and not kwargs and len(args) == 2:
                # fast path of the most frequent calls: forwarding dictionaries costs
                # as much as the kernel of a small array
                kernel, arguments, result = bind(args[0], args[1], out=out)
            else:
                if out is not None:
                    kwargs["out"] = out
                kernel, arguments, result = bind(*args, **kwargs)
        except (Foreign, TypeError, TensorlangError) as problem:
            if isinstance(problem, Foreign) or takes_over(*args, *kwargs.values()):
                if out is not None:
                    kwargs["out"] = out
                return overloaded(self, args, kwargs)
            if isinstance(problem, TypeError):
                call_signature.refuse(self, args, kwargs, problem)
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

    def _bound(self, *args: object, **kwargs: object) -> Launch:
        self._bind = binding.bound(self)
        return self._bind(*args, **kwargs)

    def _first(self, *args: object, **kwargs: object) -> Launch:
        with FIRST_CALLS:  # a fork during an import would deadlock the child
            return self._bind(*args, **kwargs)

    def prepare(self, *args: object, **kwargs: object) -> Launch:
        """The launch of a call, without running it: kernel, arguments and result.

        Calling the kernel with the arguments fills the result. It may be repeated, and
        reads the current contents of the arrays each time.
        """
        bind = self._bind if self.kernels else self._first
        try:
            return bind(*args, **kwargs)
        except TypeError as problem:
            call_signature.refuse(self, args, kwargs, problem)
            raise

    def kernel(self, *args: Any, **kwargs: Any) -> Kernel:
        """The kernel that a call with these arguments would run; consumes no key."""
        spare = [value.clone() if _is_key(value) else value for value in args]
        named = {k: v.clone() if _is_key(v) else v for k, v in kwargs.items()}
        found = self._bind(*spare, **named)[0]
        inner = getattr(found, "kernel", found)
        return self.built(inner) or inner

    def prepared(
        self, arrays: Sequence[np.ndarray], attributes: Mapping[str, Any], target: Any
    ) -> Ready:
        """The kernel of a call, and the canonical shapes of its arrays.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        asked: list[Any] = []
        for p in self.spec.parameters:
            if p.is_shape:
                held = attributes[p.name]
                if held is None:
                    continue
                asked += map(tuple, held if p.several else [held])
                if not p.is_a("like"):
                    binding.shape_of(self.id, p.name, held)
        if self.spec.elements:
            asked = self.spec.flat(asked, attributes)
        given = (*(array.shape for array in arrays), *asked)
        kinds = (
            *(ir.as_dtype(a.dtype).name for a in arrays),
            *[workloads.SHAPE] * len(asked),
        )
        rest = {k: v for k, v in attributes.items() if k not in self.spec.shapes}
        workload = self.workload(*given, dtypes=kinds, **rest)
        self.declared.check(workload)
        known = known_results.recalled(self, workload, target)
        if known is not None:
            nowhere = isinstance(target, Nowhere)
            stands = target.built(self, workload).launch if nowhere else None
            launch = stands or self._launch(workload, workload, target)
            return Ready.of(launch, known.inputs, known.outputs, several=known.several)
        made = self.traced(workload)
        values = made.values(given)
        elements = attributes[self.spec.elements] if self.spec.elements else None
        shown = made.shapes(values, elements)
        for shape in shown:
            check_result(self.id, shape)
        outputs = tuple(
            (shape, made.at(result.inner, values), result.dtype.numpy)
            for shape, result in zip(shown, made.results, strict=True)
        )
        canonical = (made.at(extents, values) for extents in made.inputs)
        inputs = tuple(
            None if shape == own else shape
            for shape, own in zip(canonical, given, strict=False)
        )
        launch = self._launch(made.function, workload, target)
        check = made.checks[0] if len(made.checks) == 1 else made.check
        asked_of = check if made.checks else None
        slots = enumerate(self.spec.slots(workload.named))
        kinds_of = self.spec.arrays
        updated = [(n, s) for n, s in slots if s in kinds_of and kinds_of[s].inplace]
        keys = tuple(result.impl for result in made.results)
        if not (made.checks or updated or any(keys) or self.spec.elements):
            seen = Known(inputs, outputs, made.several)
            known_results.note(self, workload, target, seen)
        return Ready.of(
            launch,
            inputs,
            outputs,
            asked_of,
            several=made.several,
            updated=tuple(updated),
            keys=keys,
        )

    def _launch(
        self,
        shared: Hashable,
        workload: Workload,
        target: Any,
        of_all: Workload | None = None,
    ) -> Any:
        """The launch of a workload's kernel, memoised.

        Args:
            shared: What all workloads that the kernel serves have in common.
            target: Where to compute.
            of_all: The workload that the kernel is built for; by default the first.
        """
        if isinstance(target, Nowhere) and target.each_call:
            return target.built(self, workload).launch
        key: Hashable = ("kernel", shared, *self._ways(workload, target), target)
        if key not in self.kernels:
            launch = self.build(of_all or workload, target).launch
            explained = self._faults and Explained(launch, self.id, self._faults)
            self.kernels[key] = explained or launch
            for other in self._variants(workload):
                self._launch(self.traced(other).function, other, target)
        elif known_results.is_noted(workload) and not isinstance(target, Nowhere):
            launch = getattr(self.kernels[key], "kernel", self.kernels[key])
            building.file_name(self, workload, target, self.built(launch))
        return self.kernels[key]

    def _ways(self, workload: Workload, target: Any) -> list[str]:
        """What kernels of one function differ by: what serves, and what is preferred.

        A long row may have another algorithm than the short one that came first.
        """
        ways = [a.name for a in self.algorithms.values() if a.serves(workload)]
        if len(ways) < 2 or isinstance(target, Nowhere):
            return ways[1:]
        return [*ways, building.preferred(self, workload, targets.get(target))]

    def built(self, launch: Kernel) -> Any:
        """The kernel of a launch of this operator; None for any other launch."""
        return self._launches.get(launch) or self.kernels.get(("launch", launch))

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
