"""From a definition and a call to a function: the body runs on placeholders, once.

The dimensions of the placeholders are sizes (`tensorlang.ir.sizes`): what the body asks
of them is noted as guards. A trace serves every call of the same pattern (types,
attributes, which dimensions are 1) whose sizes meet its guards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from tensorlang.errors import OperatorError, TensorlangError
from tensorlang.ir import f32, f64, function, i32, i64
from tensorlang.ir.assembly import bound, with_variables
from tensorlang.ir.dtypes import DType, as_dtype
from tensorlang.ir.frontend import Tensor
from tensorlang.ir.nodes import Axis, Buffer, Expr, For, Function, Var, as_expr
from tensorlang.ir.sizes import TRACED, Facts, Size, compiled, evaluate
from tensorlang.ir.visit import fresh, rebuild, replace_buffers, walk
from tensorlang.ops.canonical import merged, with_sizes
from tensorlang.ops.demands import fix_sides, fix_small, stay_inside
from tensorlang.ops.signature import (
    ABSENT,
    NUMBERS,
    Arrays,
    Parameter,
    Spec,
    Static,
)

Shape: TypeAlias = tuple[int, ...]
_GIVEN: Final = "__given"  # ends an input's name until all others are known


@dataclass(frozen=True, slots=True)
class Call:
    """What a call is traced for.

    Attributes:
        shapes: Of each array, and of each parameter that is a shape.
        dtypes: Our name of each array's element type.
        attributes: All that is part of the kernel, by name.
        batches: The arrays whose first size stays open where it is 1, too.
    """

    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    attributes: Mapping[str, Any]
    batches: Collection[int] = ()

    @property
    def pattern(self) -> tuple[Any, ...]:
        """What its traces are known by."""
        ones = tuple(
            [
                tuple([n == 1 and (d > 0 or at not in self.batches) for d, n in each])
                for at, each in enumerate(map(enumerate, self.shapes))
            ]
        )
        return self.dtypes, tuple(self.attributes.items()), ones


@dataclass(frozen=True, slots=True)
class KeyWords:
    """What a definition gets of a random key: its words, and the name of its hash."""

    impl: str
    words: Tensor


@dataclass(frozen=True, slots=True)
class Strips:
    """What a definition gets of a packed weight: its strips, of so many columns."""

    array: Tensor
    columns: int


@dataclass(frozen=True, slots=True)
class Result:
    """A result: its shape for the caller and for the kernel, and its type."""

    shown: tuple[Expr, ...]
    inner: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A function for all calls of a pattern that meet its guards.

    Attributes:
        symbols: The symbol of each dimension of each array; None where that is 1.
        constants: Sizes that are the same in all calls.
        guards: What the sizes have to meet.
        open: The symbols whose sizes differ from call to call, and what each is called:
            as the first that equals it.
        function: The function in canonical form.
        inputs: The shape of each array as the kernel takes it.
        results: What comes out.
        sizes: What the sizes of the function are, by name.
        checks: What is asked of the scalars at each call.
        several: Whether it returns a tuple, of one result too.
    """

    symbols: tuple[tuple[Var | None, ...], ...]
    constants: Mapping[Var, int]
    guards: tuple[Expr, ...]
    open: Mapping[Var, str]
    function: Function
    inputs: tuple[tuple[Expr, ...], ...]
    results: tuple[Result, ...]
    sizes: Mapping[str, Expr]
    checks: tuple[Callable[[Sequence[Any]], None], ...]
    several: bool

    def values(self, shapes: Sequence[Shape]) -> dict[Var, int]:
        """What the symbols are for shapes of this pattern."""
        found = (
            (var, extent)
            for shape, called in zip(shapes, self.symbols, strict=True)
            for extent, var in zip(shape, called, strict=True)
            if var is not None
        )
        return {**self.constants, **dict(found)}

    def serves(self, shapes: Sequence[Shape]) -> bool:
        """Whether shapes of this pattern meet the guards."""
        values = self.values(shapes)
        return all(evaluate(guard, values) for guard in self.guards)

    @staticmethod
    def at(shape: Iterable[Expr], values: Mapping[Var, int]) -> Shape:
        """A shape of expressions as numbers."""
        return tuple([int(evaluate(extent, values)) for extent in shape])

    def check(self, scalars: Sequence[Any]) -> None:
        """Refuse scalars that the definition does not take."""
        for check in self.checks:
            check(scalars)

    @property
    def names(self) -> tuple[tuple[str | None, ...], ...]:
        """The name of each dimension of each array; None where the size is fixed."""
        return tuple(
            tuple(None if var is None else self.open.get(var) for var in called)
            for called in self.symbols
        )


def trace(spec: Spec, body: Callable[..., Any], call: Call, *, whole: bool) -> Trace:
    """Run a definition on placeholders.

    Args:
        spec: The operator's parameters.
        body: The definition.
        call: What is called for.
        whole: Whether all sizes stay open; what it accesses lies within its arrays.

    Raises:
        TensorlangError: what the body refuses.
        OperatorError: it returns nothing that was computed.
    """
    tracer = _Tracer(spec, call)
    with _told(spec.id):
        made = tracer.run(body)
        if isinstance(made, Function):
            return tracer.verbatim(made)
        func, shown = tracer.function(made)
        if not whole:
            stay_inside(func, tracer.facts)
            fix_small(func, tracer.facts)
    made = merged(_resolved(func, tracer.facts))
    return tracer.trace(fix_sides(made, tracer.facts), shown)


@contextmanager
def _told(id: str) -> Iterator[None]:
    """Say of what is refused whose definition it is, by the definition's names."""
    try:
        yield
    except TensorlangError as problem:
        said = str(problem).replace(_GIVEN, "")
        said = said.removeprefix(f"{id.replace('.', '_')}: ")
        said = said if said.startswith(id) else f"{id}: {said}"
        if said == str(problem):
            raise
        raise type(problem)(said) from problem


class _Tracer:
    """One run of a body: its placeholders, and what is known of the sizes."""

    def __init__(self, spec: Spec, call: Call) -> None:
        self.id, self.facts = spec.id, Facts()
        self._attributes, self._dtypes = call.attributes, call.dtypes
        self._left = list(zip(call.shapes, call.dtypes, strict=True))
        self._arrays: list[tuple[Tensor, bool]] = []
        self._numbers: list[Var] = []
        self._scalars: list[Var] = []
        self._symbols: list[tuple[Var | None, ...]] = []
        self._several = False
        rest = [p for p in spec.ordered if p.name not in spec.shapes]
        self._given = {p.name: self._argument(p) for p in rest}
        self._given |= {p.name: self._shape(p) for p in spec.parameters if p.is_shape}

    # ----------------------------------------------------------- placeholders

    def _argument(self, parameter: Parameter) -> Any:
        """What the body is given for a parameter."""
        name, kind = parameter.name, parameter.kind
        if isinstance(kind, Static):
            return self._attributes[name]
        if isinstance(kind, Arrays):
            if kind.several:
                count = self._attributes[name]
                return [self._array(f"{name}{n}", kind) for n in range(count)]
            if name in self._attributes.get(ABSENT, "").split():
                return None
            if name in self._attributes.get(NUMBERS, "").split():
                beside = self._number_type(kind)
                self._numbers.append(Var(name, i32 if beside.is_bool else beside))
                number: Expr = self._numbers[-1]  # kernels take no truths
                return number.not_equal(0) if beside.is_bool else number
            made, columns = self._array(name, kind), self._attributes.get(name)
            return Strips(made, columns) if columns else made
        if kind.kind == "share" and not self._attributes[name]:
            return None
        if kind.kind in ("scalar", "share"):
            wide = f64 if "f64" in self._dtypes else f32
            whole = type(parameter.default) is int
            self._scalars.append(Var(name, i64 if whole else wide))
            return self._scalars[-1]
        if kind.kind == "key":
            impl = self._attributes[name]
            if impl is None:
                return None
            words = self._array(name, Arrays())
            int(words.shape[-1])  # as many as the hash says
            return KeyWords(impl, words)
        return as_dtype(self._attributes[name])

    def _number_type(self, kind: Arrays) -> DType:
        """Numbers are of the arrays' type, narrow floats of what is computed in."""
        fitting = [name for name in self._dtypes if name in kind.dtypes]
        beside = DType((fitting or self._dtypes)[-1])
        return f32 if beside.is_float and beside != f64 else beside

    def _array(self, name: str, kind: Arrays) -> Tensor:
        shape, dtype = self._left.pop(0)
        sizes = self._sizes(shape, batch=kind.batch)
        extents = tuple(size.expr for size in sizes)
        made = Tensor(Buffer(f"{name}{_GIVEN}", as_dtype(dtype), extents), None, sizes)
        self._arrays.append((made, kind.inplace))
        return made

    def _shape(self, parameter: Parameter) -> Any:
        """The sizes of what only the shape counts of; of each of a list."""
        count = self._attributes[parameter.name] if parameter.several else 1
        found = [self._sizes(self._left.pop(0)[0]) for _ in range(count)]
        called = (var for symbols in self._symbols[-count:] for var in symbols)
        self.facts.outer |= {var for var in called if var is not None}
        return found if parameter.several else found[0]

    def _sizes(self, shape: Shape, *, batch: bool = False) -> tuple[Size, ...]:
        first = sum(map(len, self._symbols))
        made = tuple(
            Size(self.facts, as_expr(1))
            if extent == 1 and n >= batch
            else self.facts.symbol(f"s{first + n}", extent, batch=n < batch)
            for n, extent in enumerate(shape)
        )
        found = (size.expr if isinstance(size.expr, Var) else None for size in made)
        self._symbols.append(tuple(found))
        return made

    def run(self, definition: Callable[..., Any]) -> Any:
        """What the body returns."""
        token = TRACED.set(self.facts)
        try:
            return definition(**self._given)
        finally:
            TRACED.reset(token)

    # --------------------------------------------------------------- functions

    def function(self, made: Any) -> tuple[Function, list[Tensor]]:
        """The function of what the body returned, and its results."""
        outputs = list(made) if isinstance(made, tuple) else [made]
        updates = any(updated for _, updated in self._arrays)
        self._several = isinstance(made, tuple) and not updates
        if not outputs or not all(
            isinstance(each, Tensor) and each.stage is not None for each in outputs
        ):
            raise OperatorError(
                f"{self.id}: its definition returned {made!r}; return what "
                "compute(...) made, a tuple of that, or an IR function such as "
                "ir.parse(...) gives"
            )
        views = self.facts.views
        arrays = [
            (views.get(tensor.buffer.name, tensor), updated)
            for tensor, updated in self._arrays
        ]
        written = [tensor for tensor, updated in arrays if updated]
        func = function(
            self.id.replace(".", "_"),
            [tensor for tensor, updated in arrays if not updated],
            outputs[len(written) :],
            inplace=list(zip(written, outputs, strict=False)),
            scalars=(*self._numbers, *self._scalars),
        )
        place = {tensor.buffer: n for n, (tensor, _) in enumerate(arrays)}
        params = sorted(func.params, key=lambda p: place.get(p.buffer, len(place)))
        return replace(func, params=tuple(params)), outputs[len(written) :]

    def verbatim(self, func: Function) -> Trace:
        """The trace of a function that the body returned, for these sizes alone.

        Raises:
            OperatorError: it has other inputs, outputs before inputs, or scalars.
        """
        roles = [param.role for param in func.params]
        count = len(self._arrays)
        results = func.params[count:]
        wanted = ["in"] * count + ["out"] * len(results)
        if func.scalars or not results or roles != wanted:
            raise OperatorError(
                f"{self.id}: the function {func.name} must take {count} inputs, then "
                "its outputs, and no scalars; write sizes and attributes into its text"
            )
        for (tensor, _), param in zip(self._arrays, func.params, strict=False):
            shape = tuple(as_expr(int(size)) for size in tensor.shape)
            if (param.buffer.shape, param.buffer.dtype) != (shape, tensor.dtype):
                asked = ", ".join(map(str, shape))
                raise OperatorError(
                    f"{self.id}: {param.buffer.name} of the function {func.name} is "
                    f"{param.buffer}, but the array is {tensor.dtype}[{asked}]"
                )
        shapes = [param.buffer.shape for param in results]
        return self._trace(func, shapes, func, {})

    def trace(self, func: Function, shown: Sequence[Tensor]) -> Trace:
        """The trace of a function whose dimensions are merged."""
        known = (*self._numbers, *self._scalars)
        stray = {v.name for v in func.scalars} - {v.name for v in self.facts.values}
        stray -= {var.name for var in known}
        if stray:
            raise OperatorError(
                f"{self.id}: nothing in its definition says what "
                f"{', '.join(sorted(stray))} is; take it as a keyword parameter, or "
                "fold over it where it is a reduction's axis"
            )
        shapes = [[self.facts.resolved(as_expr(e)) for e in t.shape] for t in shown]
        names = {t.buffer.name: _plain(t.buffer.name) for t, _ in self._arrays}
        taken = {*names.values(), *(var.name for var in known)}
        made, sizes = with_sizes(func, known, taken)
        return self._trace(func, shapes, _with_names(made, names, taken), sizes)

    def _trace(
        self,
        func: Function,
        shapes: Sequence[Sequence[Expr]],
        canonical: Function,
        sizes: Mapping[str, Expr],
    ) -> Trace:
        facts = self.facts
        symbols = {var for called in self._symbols for var in called}
        outs = (param.buffer for param in func.params if param.role == "out")
        inputs = (param.buffer.shape for param in func.params if param.role != "out")
        return Trace(
            tuple(self._symbols),
            {var: n for var, n in facts.values.items() if var not in symbols},
            tuple(facts.guards),
            self._open(),
            canonical,
            tuple(inputs),
            tuple(
                Result(tuple(shape), out.shape, out.dtype)
                for shape, out in zip(shapes, outs, strict=True)
            ),
            sizes,
            tuple(self._check(*check) for check in facts.checks),
            self._several,
        )

    def _open(self) -> dict[Var, str]:
        """The symbols that are not fixed, and their names."""
        found = {var: self.facts.resolved(var) for var in self.facts.values}
        return {
            var: of.name if isinstance(of, Var) else var.name
            for var, of in found.items()
            if not _is_number(of)
        }

    def _check(
        self, condition: Expr, message: str, error: type[TensorlangError]
    ) -> Callable[[Sequence[Any]], None]:
        """A function of a call's scalars that refuses those that do not meet it."""
        holds = compiled((*self._numbers, *self._scalars), condition)
        said = f"{self.id}: {message}"

        def check(scalars: Sequence[Any]) -> None:
            if not holds(*scalars):
                raise error(said)

        return check


def _is_number(expr: Expr) -> bool:
    return not isinstance(expr, Var) and not any(
        isinstance(node, Var) for node in walk(expr)
    )


def _resolved(func: Function, facts: Facts) -> Function:
    """The function with sizes that are equal as one, and those that are fixed."""

    def visit(node: Any) -> Any:
        if isinstance(node, Buffer):
            return replace(node, shape=tuple(map(facts.resolved, node.shape)))
        if isinstance(node, Var):
            return facts.resolved(node) if node in facts.same else node
        made = rebuild(node, visit)
        if isinstance(made, (For, Axis)):
            return replace(made, extent=facts.resolved(made.extent))
        return made

    made: Function = visit(func)
    scalars = tuple(var for var in func.scalars if var not in facts.same)
    return replace(made, scalars=scalars)


def _plain(name: str) -> str:
    return name.removesuffix(_GIVEN)


def _with_names(
    func: Function, names: Mapping[str, str], given: Collection[str]
) -> Function:
    """The function with its inputs called as the definition calls them.

    Whatever else has a name that is given gives way: what `compute` makes is `y` by
    default.
    """
    taken = {node.name for node in walk(func) if hasattr(node, "name")} | {*given}
    held = [node for node in walk(func) if isinstance(node, Buffer)]
    renamed = {
        buffer: replace(buffer, name=names.get(buffer.name) or fresh("out", taken))
        for buffer in dict.fromkeys(held)
        if buffer.name in names or buffer.name in given
    }
    params = tuple(
        replace(param, buffer=renamed.get(param.buffer, param.buffer))
        for param in func.params
    )
    apart = {
        var: Var(fresh(var.name, taken), var.dtype)
        for var in bound(func.body)
        if var.name in given
    }
    body = with_variables(replace_buffers(func.body, renamed), apart)
    return replace(func, params=params, body=body)
