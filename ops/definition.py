"""Operators from definitions: the signature is the spec, the body is traced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from tensorlang import lazy
from tensorlang.errors import ArgumentError, OperatorError, ShapeError
from tensorlang.ir.dtypes import DType, as_dtype
from tensorlang.ops import binding, signature
from tensorlang.ops.algorithms import DIRECT, Algorithm, Define
from tensorlang.ops.declarations import NOTHING, declarations
from tensorlang.ops.decorator_options import decorator
from tensorlang.ops.dispatch import Nowhere
from tensorlang.ops.documentation import as_for, documented
from tensorlang.ops.indices import Explained
from tensorlang.ops.operator import Launch, Operator, Shapes
from tensorlang.ops.requests import checked_shapes, whole_shapes
from tensorlang.ops.signature import (
    DERIVED,
    NUMBERS,
    Arrays,
    Domain,
    Parameter,
    Spec,
    Static,
    derived_scalars,
)
from tensorlang.ops.tensors import Ready, call, check_result
from tensorlang.workload import Workload, attributes_of

if TYPE_CHECKING:
    from tensorlang import targets
    from tensorlang.ir.nodes import Function
    from tensorlang.ops import derived_gradients, tracing
    from tensorlang.ops.random import impls
    from tensorlang.ops.tracing import Trace
else:  # these load the IR, or stand on definitions
    targets = lazy.module("tensorlang.targets")
    derived_gradients = lazy.module("tensorlang.ops.derived_gradients")
    tracing = lazy.module("tensorlang.ops.tracing")
    impls = lazy.module("tensorlang.ops.random.impls")

Body = Callable[..., Any]
_MOST_TRACES: Final = 64  # of one pattern
_MOST_PATTERNS: Final = 1024
_SHAPE: Final = "shape"  # in place of a dtype, for parameters that are only shapes
_SHOWN: Final = {
    "scalar": "float",
    "share": "float",
    "key": "Key",
    "offset": "int",
    "child": "Any",
    "derived": "Any",
    "shape": "Sizes",
    "elements": "Sizes",
    "like": "Any",
    "dtype": "str",
}


class _Documentation:
    """Descriptor: the docstring of an operator, composed at first access."""

    def __init__(self, of_class: str) -> None:
        self._of_class = of_class

    def __get__(self, op: Definition | None, _: type) -> str:
        if op is None:
            return self._of_class
        said = (op.host and op.host.__doc__) or op.body.__doc__ or ""
        if not op.in_library:
            return said  # docstrings of user-defined operators are not completed
        return documented(said, op.parameters, as_for(op) | op.meanings, op.shared)


class Definition(Operator):  # noqa: D101 - it has one
    __doc__ = _Documentation("""An operator whose spec is its definition's signature.

    Args:
        id: The canonical id.
        body: The definition.
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
        derive: Checks those arguments of a call that it names, and derives scalars from
            them before the kernel is looked up. It returns their description, which
            is part of the kernel, such as `"rate:u32,f32"` (see
            `tensorlang.ops.signature.derived_scalars`), and the scalars. Parameters
            annotated `Derived` are passed to it only.
        measured: Arguments of `derive` to measure kernels with, for each description.
        view: For a result that is the first array in another shape, and shares its
            memory if possible: gives that shape, from the array's shape and the
            attributes by name.
        gradient: The options of the gradient, if it is derived
            (`tensorlang.ops.derived_gradients`).
        options: As for `Operator`.
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
        derive: Callable[..., tuple[str, tuple[object, ...]]] | None = None,
        measured: Sequence[Mapping[str, object]] = ({},),
        view: Callable[..., tuple[int, ...]] | None = None,
        variants: Callable[[Workload], Sequence[Workload]] = lambda _: (),
        gradient: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.id, self.body = id, body
        self.meanings, self.missing = dict(meanings or {}), missing or {}
        self._shapes, self.usual_attributes, self.is_whole = shapes, usual, whole
        self._gradient = gradient
        self.host = host
        self.instead = instead or {}
        self._faults, self.view, self._variants = faults, view, variants
        self.derive, self._measured = derive, measured
        self._traces: dict[Hashable, list[Trace]] = {}
        self.patterns: dict[tuple[int, ...], binding.Pattern] = {}
        declared = NOTHING
        if sizes or indices or samples:
            declared = declarations(id, body, self.spec, sizes, indices or {}, samples)
        super().__init__(
            id,
            self.define(DIRECT),
            self._bound,
            body=body,
            declared=declared,
            **options,
        )
        if not self.in_library:
            assert self.parameters  # reports a faulty signature at the definition

    # ------------------------------------------------------------------- signature

    @cached_property
    def spec(self) -> Spec:
        """The parameters of the operator, other than `target` and `out`."""
        return signature.spec(self.id, self.body)

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
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        own = [
            inspect.Parameter(
                p.name, kinds[p.keyword], default=p.default, annotation=_shown(p)
            )
            for p in self.parameters
        ]
        shared = [
            inspect.Parameter(name, kinds[1], default=None, annotation="Any")
            for name in self.shared
        ]
        return inspect.Signature([*own, *shared])

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The supported element types; empty if any type is accepted."""
        kinds = (kind.dtypes for kind in self.spec.arrays.values())
        usual = (kind for kind in kinds if kind not in ((), ("bool",), ("i32", "i64")))
        return next(usual, ())

    def _bound(self, *args: object, **kwargs: object) -> Launch:
        self._front = binding.bound(self)
        return self._front(*args, **kwargs)

    def refuse(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], problem: TypeError
    ) -> None:
        """Raise a precise error if a call's arguments do not match its signature.

        Raises:
            ArgumentError: one is missing, or unknown to the operator.
            TargetError: the target cannot be part of a cache key.
        """
        target = kwargs.get("target")
        try:
            hash(target)
        except TypeError:
            targets.get(target)
        known = {p.name: p for p in self.parameters}
        unknown = kwargs.keys() - known.keys() - {*self.shared}
        if unknown:
            raise ArgumentError(
                f"{self.id} has no attribute {', '.join(sorted(unknown))}; it has "
                f"{', '.join(n for n in known if n not in self.spec.arrays) or 'none'}"
            ) from problem
        try:
            inspect.signature(self).bind(*args, **kwargs)
        except TypeError:
            places = [p.name for p in self.parameters if not p.keyword]
            placed = {*places[: len(args)]}
            given = placed | {*kwargs}
            missing = [n for n, p in known.items() if p.needed and n not in given]
            others = (placed | {*missing}) - {*self.spec.arrays}
            if missing and (others or self.spec.keys):
                said = (f"{n}=" if known[n].keyword else n for n in missing)
                raise ArgumentError(f"{self.id} needs {', '.join(said)}") from problem
            arrays, count = ", ".join(self.spec.arrays), len(self.spec.arrays)
            raise ArgumentError(
                f"{self.id} takes {count} array{'s' * (count != 1)} ({arrays}), "
                f"got {len(args)}"
            ) from problem

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
        """The workload of a call with arrays of these shapes.

        The shapes of results come last, if they are parameters.

        Raises:
            ShapeError: one is no shape.
        """
        given = whole_shapes(shapes) or self.usual_shapes
        asked = attributes if shapes else {**self.usual_attributes, **attributes}
        asked_for = (p.is_shape and not p.is_optional for p in self.spec.parameters)
        unsaid = len(given) == len(self.spec.arrays) + sum(asked_for)
        keys, kinds = self.spec.keys if unsaid else (), dtypes
        if isinstance(kinds, tuple) and keys and not self.spec.arrays:
            (kinds,) = kinds  # of what is drawn
        if isinstance(kinds, str):
            kinds = as_dtype(kinds).name
            if not any(kinds in kind.dtypes for kind in self.spec.arrays.values()):
                asked = {**dict.fromkeys(self.spec.types, kinds), **asked}
        named = self.spec.fitted(asked, len(given) + len(keys))
        slots, rest = self.spec.slots(named), iter(given)
        words = {name: _words(str(named[name])) for name in self.spec.keys}
        held = [words[n][:1] if n in keys else islice(rest, 1) for n in slots]
        given = (*chain(*held), *rest)
        if isinstance(kinds, tuple) and keys:
            each = iter(kinds)
            kinds = (*(words[n][1] if n in keys else next(each) for n in slots), *each)
        elif not isinstance(kinds, tuple):
            kinds = tuple(
                words[name][1] if name in words else _usual_type(kind, kinds)
                for name in slots
                for kind in [self.spec.arrays.get(name, Arrays())]
            )
            kinds += (_SHAPE,) * (len(given) - len(kinds))
        if self.derive is not None and DERIVED not in asked:
            all_of = {**named, **asked}
            if variant := self._deriving(all_of, kinds[0], self._measured[0])[0]:
                named[DERIVED] = variant
        count = len(slots)
        most = count + len(self.spec.listed(named))
        if self.spec.keys and len(given) > most:
            raise ShapeError(f"{self.id} takes {most} shapes, got {len(given)}")
        given = (*given[:count], *self.spec.flat(given[count:], named))
        return Workload(
            self.id, given, kinds[: len(given)], attributes_of(named), threads
        )

    def told(self, workload: Workload) -> str:
        """The workload as text, without attributes that have their default values."""
        usual = {p.name: p.default for p in self.spec.parameters} | {NUMBERS: ""}
        told = (name for name in (*self.spec.attributes, NUMBERS) if name in usual)
        named = {name: workload.named.get(name, usual[name]) for name in told}
        differing = {name: v for name, v in named.items() if v != usual[name]}
        return str(replace(workload, attributes=attributes_of(differing)))

    def _deriving(
        self, named: Mapping[str, Any], kind: str, usual: Mapping[str, Any]
    ) -> tuple[str, tuple[object, ...]]:
        """The variant and scalars that `derive` gives, with `usual` as defaults."""
        assert self.derive is not None
        taken = {}
        for name in inspect.signature(self.derive).parameters:
            (p,) = (p for p in self.spec.parameters if p.name == name)
            if isinstance(p.kind, Arrays):
                taken[name] = np.empty(0, DType(kind).numpy)
            else:
                taken[name] = named.get(name, usual.get(name, p.default))
        return self.derive(**taken)

    @property
    def definition(self) -> Body:
        """The definition on tensors."""
        return self.body

    def define(self, algorithm: str, body: Body | None = None) -> Define:
        """A function from workloads to the IR of an algorithm."""

        def function(workload: Workload) -> Function:
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
        self.spec.check(call.dtypes, call.attributes)
        made = tracing.trace(
            self.spec,
            body or self.definition,
            call,
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

    def scalars(self, workload: Workload) -> Mapping[str, Any]:
        """Typical values of the scalars: defaults, and numbers in place of arrays."""
        kind = workload.dtypes[-1] if workload.dtypes else "f32"
        number = True if kind == "bool" else 3 if kind[0] in "iu" else 0.5
        numbers = str(workload.named.get(NUMBERS, "")).split()
        scalars = [p for p in self.spec.parameters if p.is_a("scalar")]
        shares = [p.name for p in self.spec.parameters if p.is_a("share")]
        return (
            self._usual_derived(workload)
            | dict.fromkeys(numbers, number)
            | {p.name: 0.5 if p.needed else p.default for p in scalars}
            | {name: 0.5 for name in shares if workload.named[name]}
        )

    def _usual_derived(self, workload: Workload) -> dict[str, object]:
        variant = workload.named.get(DERIVED)
        for usual in self._measured if variant else ():
            found, numbers = self._deriving(workload.named, workload.dtypes[0], usual)
            if found == variant:
                made = derived_scalars(found).values()
                names = (name for scalars in made for name, _ in scalars)
                return dict(zip(names, numbers, strict=True))
        return {}

    def shape(self, *shapes: tuple[int, ...], **attributes: Any) -> Any:
        """The shape of the result for input shapes; several results give a tuple."""
        workload = self.workload(*checked_shapes(shapes), **attributes)
        made = self.traced(workload)
        values = made.values(workload.shapes)
        elements = shapes[-1] if self.spec.elements and shapes else None
        results = made.shapes(values, elements)
        return results if made.several or len(results) != 1 else results[0]

    # ----------------------------------------------------------------------- calls

    def prepared(
        self,
        arrays: Sequence[np.ndarray],
        attributes: Mapping[str, Any],
        target: Any,
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
        kinds = (*(as_dtype(a.dtype).name for a in arrays), *[_SHAPE] * len(asked))
        rest = {k: v for k, v in attributes.items() if k not in self.spec.shapes}
        workload = self.workload(*given, dtypes=kinds, **rest)
        self.declared.check(workload)
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
        return Ready.of(
            launch,
            inputs,
            outputs,
            asked_of,
            several=made.several,
            updated=tuple(updated),
            keys=tuple(result.impl for result in made.results),
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
            workload: The workload.
            target: Where to compute.
            of_all: The workload that the kernel is built for; by default the first.
        """
        if isinstance(target, Nowhere) and target.each_call:
            return target.built(self, workload).launch
        ways = [a.name for a in self.algorithms.values() if a.serves(workload)]
        key: Hashable = ("kernel", shared, *ways[1:], target)
        if key not in self.kernels:
            launch = self.build(of_all or workload, target).launch
            explained = self._faults and Explained(launch, self.id, self._faults)
            self.kernels[key] = explained or launch
            for other in self._variants(workload):
                self._launch(self.traced(other).function, other, target)
        return self.kernels[key]


def _words(how: str) -> tuple[tuple[int, ...], str]:
    """The shape and type of a key's words."""
    found = impls.impl(how)
    return (found.key_words,), f"u{found.bits}"


def _usual_type(kind: Arrays, asked: str | tuple[str, ...] | None) -> str:
    """The type of an array in a workload for which one type, or none, is given."""
    if isinstance(asked, str) and (not kind.dtypes or asked in kind.dtypes):
        return asked
    if 0 < len(kind.dtypes) < 3:
        return kind.dtypes[-1]  # the wider of two
    names = kind.dtypes or ("f32",)
    return next((name for name in ("f32", "i32") if name in names), names[-1])


def _shown(parameter: Parameter) -> str:
    """The annotation of a parameter in a call's signature."""
    kind = parameter.kind
    if isinstance(kind, Static):
        return " | ".join(t.__name__ for t in kind.types) or "Any"
    if isinstance(kind, Domain):
        return f"{kind.type.__name__} | None" if kind.optional else kind.type.__name__
    if isinstance(kind, Arrays):
        array = "Operand" if kind.number else "Any"
        array = "Sequence[Any]" if kind.several else array
        return f"{array} | None" if kind.optional else array
    if kind.several:
        return "Sequence[Any]"
    if kind.counted:
        return "Any"
    return f"{_SHOWN[kind.kind]} | None" if kind.optional else _SHOWN[kind.kind]


def operator(
    id: str,
    *,
    family: str = "",
    tolerance: float = 0.0,
    sizes: str = "",
    indices: Mapping[str, str | int] | None = None,
    samples: Callable[..., object] | None = None,
    **options: object,
) -> Callable[[Body], Definition]:
    """Decorator: make an operator from a definition in tensor-expression style.

    Args:
        id: The canonical id: identifiers joined by dots, such as `my.scaled_sum`.
        family: The family whose schedules apply; if empty, the generic schedules.
        tolerance: The allowed relative error of kernels against the interpreter.
        sizes: A condition that the sizes of every call must meet, such as
            `"h >= 5 and w >= 5"`: an expression of integers, sizes, attributes,
            `+ - * // %`, comparisons, `and`, `or`, `not`. Sizes are named as in the
            definition (`h, w = x.shape`), or by array and dimension (`x.0`). By
            default, conditions are derived from the definition's accesses.
        indices: For integer arrays, the exclusive upper bound of their elements, which
            start at 0: `{"ids": "table.0"}`. By default, derived from the accesses.
        samples: Prepares the inputs for checking and timing kernels that need special
            ones, such as sorted arrays. It is called like the definition, with arrays
            (random or of special values), and returns those to use, or None if it
            changed them in place.
        options: As for `Definition`.

    Raises:
        OperatorError: the name is not an identifier, or is taken by another operator,
            an option is unknown or of a wrong type, or a declaration names no size or
            array of the definition.
    """
    options |= {"family": family, "tolerance": tolerance, "sizes": sizes}
    options |= {"indices": indices, "samples": samples}
    return decorator(Definition, id, options)


def algorithm(
    op: Definition,
    name: str,
    *,
    serves: Callable[[Workload], bool] | None = None,
    tolerance: float = 0.0,
    feature: str = "",
    finite: bool = False,
) -> Callable[[Body], Body]:
    """Decorator: add an algorithm to `op`, as a definition with the same parameters.

    Args:
        op: The operator.
        name: The name of the algorithm, unique within the operator.
        serves: A predicate on workloads that it can compute; all by default.
        tolerance: The allowed relative error against the reference.
        feature: The target feature that it is designed for.
        finite: Whether it requires finite inputs of moderate size: an infinity, a NaN
            or a very large number may corrupt results that do not depend on it in the
            reference, as in Winograd convolution.

    Raises:
        OperatorError: the operator has an algorithm of that name.
    """
    if name in op.algorithms:
        raise OperatorError(f"{op.id} has an algorithm {name!r} already")

    def add(body: Body) -> Body:
        usable = serves or (lambda _: True)
        define = op.define(name, body)
        made = Algorithm(name, define, usable, tolerance, feature, finite)
        op.algorithms[name] = made
        return body

    return add
