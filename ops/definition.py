"""Operators by their definitions: the signature is the spec, the body is traced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, OperatorError
from tensorlang.ops import binding, signature
from tensorlang.ops.declarations import declarations
from tensorlang.ops.documentation import documented
from tensorlang.ops.indices import Explained
from tensorlang.ops.operator import DIRECT, Algorithm, Define, Launch, Operator, Shapes
from tensorlang.ops.signature import NUMBERS, Arrays, Parameter, Spec, Static
from tensorlang.ops.tensors import Ready, check_result
from tensorlang.workload import Workload, attributes_of

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.ops.tracing import Trace

Body = Callable[..., Any]
_MOST_TRACES: Final = 64  # of one pattern
_MOST_PATTERNS: Final = 1024
_SHAPE: Final = "shape"  # stands for the type of what is only a shape
_SHOWN: Final = {
    "scalar": "float",
    "share": "float",
    "key": "Key",
    "shape": "Sizes",
    "like": "Any",
    "dtype": "str",
}


class _Documentation:
    """The docstring of an operator, put together when it is asked for."""

    def __init__(self, of_class: str) -> None:
        self._of_class = of_class

    def __get__(self, op: Definition | None, _: type) -> str:
        if op is None:
            return self._of_class
        said = op.body.__doc__ or ""
        if not op.module.startswith("tensorlang."):
            return said  # what a user says of an operator stands as it is
        return documented(said, op.spec.parameters, op.meanings)


class Definition(Operator):  # noqa: D101 - it has one
    __doc__ = _Documentation("""An operator whose spec is its definition's signature.

    Args:
        id: Its canonical id.
        body: The definition.
        shapes: Those of its default workload.
        usual: The attributes of that workload, where they are not the defaults.
        whole: Whether all sizes stay open; what it accesses lies within its arrays.
        meanings: What parameters mean that the definition says nothing of.
        missing: What operands are that are left out beside others: a number, by the
            name of the arrays' type.
        faults: What to say, of its arguments, where a kernel reports a fault.
        variants: The workloads whose kernels are built with that of a workload, such as
            that of one row beside that of many: no other batch waits for a compiler.
        view: Where the result is the first array in another shape, and shares its
            memory where it can, that shape: a function of the array's, and of the
            attributes by name.
        options: As for `Operator`.
    """)

    def __init_subclass__(cls) -> None:
        cls.__doc__ = _Documentation(cls.__doc__ or "")  # type: ignore[assignment]

    def __init__(
        self,
        id: str,
        body: Body,
        *,
        shapes: Shapes = (),
        usual: Mapping[str, Any] = MappingProxyType({}),
        whole: bool = False,
        meanings: Mapping[str, str] | None = None,
        missing: Mapping[str, Callable[[str], Any]] | None = None,
        faults: Callable[[Sequence[Any]], str] | None = None,
        view: Callable[..., tuple[int, ...]] | None = None,
        variants: Callable[[Workload], Sequence[Workload]] = lambda _: (),
        **options: Any,
    ) -> None:
        self.body, self.meanings, self.missing = body, meanings or {}, missing or {}
        self._shapes, self._usually, self._whole = shapes, usual, whole
        self._faults, self.view, self._variants = faults, view, variants
        self._traces: dict[Hashable, list[Trace]] = {}
        self.patterns: dict[tuple[int, ...], binding.Pattern] = {}
        super().__init__(
            id,
            self.define(DIRECT),
            self._bound,
            body=body,
            sizes=self._sizes,
            scalars=self._usual,
            **options,
        )
        if not self.module.startswith("tensorlang."):
            assert self.spec  # a mistake in a signature is told where it is made

    # ------------------------------------------------------------------- signature

    @cached_property
    def spec(self) -> Spec:
        """What the operator takes beside `target` and `out`."""
        return signature.spec(self.id, self.body)

    @property
    def __signature__(self) -> inspect.Signature:  # type: ignore[override]
        """How it is called."""
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        own = [
            inspect.Parameter(
                p.name, kinds[p.keyword], default=p.default, annotation=_shown(p)
            )
            for p in self.spec.parameters
        ]
        shared = [
            inspect.Parameter(name, kinds[1], default=None, annotation="Any")
            for name in signature.RESERVED
        ]
        return inspect.Signature([*own, *reversed(shared)])

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The element types that it is defined for; empty where any may do."""
        kinds = (kind.dtypes for kind in self.spec.arrays.values())
        return next((kind for kind in kinds if kind not in ((), ("bool",))), ())

    def _bound(self, *args: Any, **kwargs: Any) -> Launch:
        self._front = binding.bound(self)
        return self._front(*args, **kwargs)

    def refuse(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], problem: TypeError
    ) -> None:
        """Say what is wrong with arguments that are not those of a call, if they are.

        Raises:
            ArgumentError: one is missing, or none that the operator has.
        """
        known = {p.name: p for p in self.spec.parameters}
        unknown = kwargs.keys() - known.keys() - set(signature.RESERVED)
        if unknown:
            raise ArgumentError(
                f"{self.id} has no attribute {', '.join(sorted(unknown))}; it has "
                f"{', '.join(n for n in known if n not in self.spec.arrays) or 'none'}"
            ) from problem
        try:
            inspect.signature(self).bind(*args, **kwargs)
        except TypeError:
            arrays = ", ".join(self.spec.arrays)
            raise ArgumentError(
                f"{self.id} takes {len(self.spec.arrays)} arrays ({arrays}), "
                f"got {len(args)}"
            ) from problem

    # ------------------------------------------------------------------- workloads

    @property
    def usual_shapes(self) -> Shapes:
        """The shapes that stand for it where none is given."""
        return self._shapes

    @property
    def default(self) -> Workload:
        """The workload that stands for it where no shape is given."""
        return self.workload()

    def workload(
        self,
        *shapes: tuple[int, ...],
        dtypes: tuple[str, ...] | str | None = None,
        threads: int = 0,
        **attributes: Any,
    ) -> Workload:
        """The workload of a call with arrays of these shapes.

        Those of its results come last, where a parameter says them.
        """
        given = tuple(tuple(map(int, shape)) for shape in shapes) or self.usual_shapes
        asked = attributes if shapes else {**self._usually, **attributes}
        named = self.spec.fitted(asked, len(given))
        kinds = dtypes
        if isinstance(kinds, str):
            from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - once a workload

            kinds = as_dtype(kinds).name
        if not isinstance(kinds, tuple):
            arrays = [self.spec.arrays.get(n, Arrays()) for n in self.spec.slots(named)]
            kinds = tuple(_usual_type(kind, kinds) for kind in arrays)
            kinds += (_SHAPE,) * (len(given) - len(kinds))
        return Workload(
            self.id, given, kinds[: len(given)], attributes_of(named), threads
        )

    @property
    def definition(self) -> Body:
        """The definition on tensors."""
        return self.body

    def define(self, algorithm: str, body: Body | None = None) -> Define:
        """From a workload to the function of an algorithm."""

        def function(workload: Workload) -> Function:
            return self.traced(workload, algorithm, body).function

        return function

    def traced(
        self, workload: Workload, algorithm: str = DIRECT, body: Body | None = None
    ) -> Trace:
        """The trace that serves a workload: a known one, or a new one."""
        from tensorlang.ops.tracing import Call, trace  # noqa: PLC0415 - loads the IR

        if (
            len(self._traces) > _MOST_PATTERNS
        ):  # of a program whose attributes never end
            self._traces.clear()
        named = workload.named
        kinds = [self.spec.arrays.get(name) for name in self.spec.slots(named)]
        batches = [at for at, kind in enumerate(kinds) if kind and kind.batch]
        call = Call(workload.shapes, workload.dtypes, named, batches)
        known = self._traces.setdefault((algorithm, call.pattern), [])
        for made in known:
            if made.serves(call.shapes):
                return made
        self.spec.check(call.dtypes, call.attributes)
        made = trace(self.spec, body or self.definition, call, whole=self._whole)
        if len(known) >= _MOST_TRACES:  # of a program whose sizes never end
            known.clear()
        known.append(made)
        return made

    def names(self, workload: Workload) -> tuple[tuple[str | None, ...], ...]:
        """The name of each dimension of each array; None where the kernel fixes it."""
        return self.traced(workload).names

    def _sizes(self, workload: Workload) -> dict[str, int]:
        made = self.traced(workload)
        values = made.values(workload.shapes)
        return dict(zip(made.sizes, made.at(made.sizes.values(), values), strict=True))

    def _usual(self, workload: Workload) -> dict[str, Any]:
        """Usual values of the scalars: defaults, and those of numbers for arrays."""
        kind = workload.dtypes[-1] if workload.dtypes else "f32"
        number = True if kind == "bool" else 3 if kind[0] in "iu" else 0.5
        numbers = str(workload.named.get(NUMBERS, "")).split()
        scalars = [p for p in self.spec.parameters if p.is_a("scalar")]
        shares = [p.name for p in self.spec.parameters if p.is_a("share")]
        return (
            dict.fromkeys(numbers, number)
            | {p.name: 0.5 if p.needed else p.default for p in scalars}
            | {name: 0.5 for name in shares if workload.named[name]}
        )

    def shape(self, *shapes: tuple[int, ...], **attributes: Any) -> Any:
        """The result's shape for arrays of these shapes: a tuple each; no data."""
        workload = self.workload(*shapes, **attributes)
        made = self.traced(workload)
        values = made.values(workload.shapes)
        results = tuple(made.at(result.shown, values) for result in made.results)
        return results if made.several or len(results) != 1 else results[0]

    # ----------------------------------------------------------------------- calls

    def prepared(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        attributes: Mapping[str, Any],
        target: Any,
    ) -> Ready:
        """The kernel of a call, and how its arrays are laid before it.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - only to prepare

        asked: list[Any] = []
        for p in self.spec.parameters:
            if p.is_shape:
                held = attributes[p.name]
                asked += map(tuple, held if p.several else [held])
        given = (*(array.shape for array in arrays), *asked)
        kinds = (*(as_dtype(a.dtype).name for a in arrays), *[_SHAPE] * len(asked))
        rest = {k: v for k, v in attributes.items() if k not in self.spec.shapes}
        workload = self.workload(*given, dtypes=kinds, **rest)
        self.declared.check(workload)
        made = self.traced(workload)
        values = made.values(given)
        shown = [made.at(result.shown, values) for result in made.results]
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
        return Ready.of(launch, inputs, outputs, asked_of, several=made.several)

    def _launch(self, func: Function, workload: Workload, target: Any) -> Any:
        """The kernel of a function: the same for all calls that it serves."""
        ways = [a.name for a in self.algorithms.values() if a.serves(workload)]
        key: Hashable = ("kernel", func, *ways[1:], target)
        if key not in self.kernels:
            launch = self.build(workload, target).launch
            explained = self._faults and Explained(launch, self.id, self._faults)
            self.kernels[key] = explained or launch
            for other in self._variants(workload):
                self._launch(self.traced(other).function, other, target)
        return self.kernels[key]


def _usual_type(kind: Arrays, asked: str | tuple[str, ...] | None) -> str:
    """The type of an array in a workload where only one type, or none, is asked for."""
    if isinstance(asked, str) and (not kind.dtypes or asked in kind.dtypes):
        return asked
    if 0 < len(kind.dtypes) < 3:
        return kind.dtypes[-1]  # the wider of two
    known = (name for name in ("f32", "i32") if not kind.dtypes or name in kind.dtypes)
    return next(known)


def _shown(parameter: Parameter) -> str:
    """How a parameter is annotated for a caller."""
    kind = parameter.kind
    if isinstance(kind, Static):
        return " | ".join(t.__name__ for t in kind.types) or "Any"
    if isinstance(kind, Arrays):
        array = "Operand" if kind.number else "Any"
        array = "Sequence[Any]" if kind.several else array
        return f"{array} | None" if kind.optional else array
    if kind.several:
        return "Sequence[Any]"
    return f"{_SHOWN[kind.kind]} | None" if kind.optional else _SHOWN[kind.kind]


def operator(
    id: str,
    *,
    aliases: tuple[str, ...] = (),
    family: str = "",
    tolerance: float = 0.0,
    sizes: str = "",
    indices: Mapping[str, str | int] | None = None,
    samples: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[[Body], Definition]:
    """Make an operator of a definition in tensor-expression style.

    Args:
        id: Its canonical id: words joined by dots, such as `my.scaled_sum`.
        aliases: Other names for it.
        family: What its schedules are registered under; generic ones where empty.
        tolerance: The relative error its kernels may have against the interpreter.
        sizes: A condition on sizes, such as `"h >= 5 and w >= 5"`, that calls meet: of
            whole numbers, sizes, attributes, `+ - * // %`, comparisons, `and`, `or`,
            `not`. Sizes are called as the definition calls them (`h, w = x.shape`), or
            by array and dimension (`x.0`). What sizes its accesses need is derived
            where nothing is declared.
        indices: By integer array, the number that its elements, from 0 on, stay below:
            `{"ids": "table.0"}`. Derived from the accesses where not declared.
        samples: Makes the arrays that kernels are checked and timed with where not
            just any will do, such as sorted ones. It is called like the definition,
            with arrays (random or of special values), and returns those to use, or
            None where it changed them in place.
        options: As for `Definition`.

    Raises:
        OperatorError: the name is not an identifier, another operator has it, or a
            declaration names what is no size or array.
    """
    checked_name(id)

    def make(body: Body) -> Definition:
        if sizes or indices or samples:
            spec = signature.spec(id, body)
            options["declared"] = declarations(
                id,
                body,
                tuple(spec.arrays),
                spec.attributes,
                sizes=sizes,
                indices=indices,
                samples=samples,
            )
        return Definition(
            id, body, aliases=aliases, family=family, tolerance=tolerance, **options
        )

    return make


def checked_name(id: str) -> None:
    """Refuse an id that is none.

    Raises:
        OperatorError: it is not of words joined by dots.
    """
    if not all(part.isidentifier() for part in id.split(".")):
        raise OperatorError(f"{id!r} is not a name such as 'my.op'")


def algorithm(
    op: Operator,
    name: str,
    *,
    serves: Callable[[Workload], bool] | None = None,
    tolerance: float = 0.0,
    feature: str = "",
    finite: bool = False,
) -> Callable[[Body], Body]:
    """Add another way to compute `op`: a definition with the same parameters.

    Args:
        op: The operator.
        name: The algorithm's name, new to the operator.
        serves: Which workloads it can compute; all by default.
        tolerance: The relative error it may have against the reference.
        feature: What a target has that it is made for.
        finite: Whether an infinity, a NaN or a very large number among its inputs may
            spoil results that the reference makes without it, as in Winograd's.

    Raises:
        OperatorError: the operator has an algorithm of that name, or no definition that
            could have others beside it.
    """
    if name in op.algorithms:
        raise OperatorError(f"{op.id} has an algorithm {name!r} already")
    if not isinstance(op, Definition):
        raise OperatorError(f"{op.id} takes no further algorithms")

    def add(body: Body) -> Body:
        usable = serves or (lambda _: True)
        define = op.define(name, body)
        made = Algorithm(name, define, usable, tolerance, feature, finite)
        op.algorithms[name] = made
        return body

    return add
