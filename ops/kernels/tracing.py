"""Tracing: a definition's body runs once on placeholders, which gives a function.

The dimensions of placeholders are symbolic sizes (`tensorlang.ir.definitions.sizes`);
conditions that the body tests on them become guards. A trace serves every call of the
same pattern (types, attributes, which dimensions are 1) whose sizes meet its guards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeAlias

from tensorlang import ir
from tensorlang.errors import OperatorError, ShapeError, TensorlangError
from tensorlang.frozen import frozen
from tensorlang.ir.definitions.assembly import bound
from tensorlang.ir.definitions.sizes import TRACED, Facts, compiled, evaluate
from tensorlang.ops.kernels.canonical import merged, with_sizes
from tensorlang.ops.random.impls import impl
from tensorlang.ops.spec.demands import fix_short, fix_small, stay_inside
from tensorlang.ops.spec.shared_sizes import check_shared
from tensorlang.ops.spec.signature import (
    ABSENT,
    DERIVED,
    NUMBERS,
    Arrays,
    Parameter,
    Spec,
    Static,
    derived_scalars,
)

Shape: TypeAlias = tuple[int, ...]
_GIVEN: Final = "__given"  # ends an input's name until all others are known


@frozen
class Call:
    """The facts of a call that its trace depends on.

    Attributes:
        shapes: The shape of each array, and of each parameter that is a shape.
        dtypes: The canonical name of each array's element type.
        attributes: All attributes that the kernel is specialised for, by name.
        batches: The arrays whose first size stays symbolic even if it is 1.
    """

    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    attributes: Mapping[str, Any]
    batches: Collection[int] = ()

    @property
    def pattern(self) -> tuple[object, ...]:
        """The cache key of its traces."""
        ones = tuple(
            [
                tuple([n == 1 and (d > 0 or at not in self.batches) for d, n in each])
                for at, each in enumerate(map(enumerate, self.shapes))
            ]
        )
        return self.dtypes, tuple(self.attributes.items()), ones


@frozen
class KeyWords:
    """A random key in a definition: its words, and the name of its hash."""

    impl: str
    words: ir.Tensor


@frozen
class Strips:
    """A packed weight in a definition."""

    array: ir.Tensor  # its strips
    columns: int  # number of their columns
    spare: int  # inputs of zeros that fill the last group


@frozen
class Result:
    """A result: its shape for the caller and for the kernel, and its type.

    For a result that is a key, `impl` is the hash.
    """

    shown: tuple[ir.Expr, ...]
    inner: tuple[ir.Expr, ...]
    dtype: ir.DType
    impl: str = ""


@frozen(eq=False)
class Trace:
    """A function for all calls of a pattern that meet its guards."""

    # symbol of each dimension of each array; None if it is 1
    symbols: tuple[tuple[ir.Var | None, ...], ...]
    constants: Mapping[ir.Var, int]  # sizes that are equal in all calls
    guards: tuple[ir.Expr, ...]  # conditions that the sizes must meet
    # symbols that are not fixed, with the name of each: that of the first symbol equal
    # to it
    open: Mapping[ir.Var, str]
    function: ir.Function  # function in canonical form
    inputs: tuple[tuple[ir.Expr, ...], ...]  # canonical shape of each array
    results: tuple[Result, ...]
    sizes: Mapping[str, ir.Expr]  # expressions for the sizes of the function, by name
    # conditions on the scalars of each call
    checks: tuple[Callable[[Sequence[Any]], None], ...]
    several: bool  # whether it returns a tuple, possibly of one result

    def values(self, shapes: Sequence[Shape]) -> dict[ir.Var, int]:
        """The values of the symbols for shapes of this pattern."""
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
    def at(shape: Iterable[ir.Expr], values: Mapping[ir.Var, int]) -> Shape:
        """A shape, with its expressions evaluated."""
        return tuple([int(evaluate(extent, values)) for extent in shape])

    def shapes(
        self, values: Mapping[ir.Var, int], elements: Shape | None = None
    ) -> tuple[Shape, ...]:
        """The shapes of the results, with `elements` in place of their number."""
        found = []
        for result in self.results:
            shape, words = self.at(result.shown, values), bool(result.impl)
            if elements is not None:
                at = len(shape) - 1 - words
                shape = (*shape[:at], *elements, *shape[at + 1 :])
            found.append(shape)
        return tuple(found)

    def check(self, scalars: Sequence[object]) -> None:
        """Refuse scalars that do not meet the definition's conditions."""
        for check in self.checks:
            check(scalars)

    @property
    def names(self) -> tuple[tuple[str | None, ...], ...]:
        """The name of each dimension of each array; None if the size is fixed."""
        return tuple(
            tuple(None if var is None else self.open.get(var) for var in called)
            for called in self.symbols
        )


def trace(
    spec: Spec,
    body: Callable[..., object],
    call: Call,
    read_as: Sequence[str],
    *,
    whole: bool,
    stated: Collection[str] | None,
) -> Trace:
    """Run a definition on placeholders.

    Args:
        spec: The operator's parameters.
        body: The definition.
        call: The call to trace.
        read_as: The type in which the body reads each array.
        whole: Whether all sizes stay symbolic, as all accesses are known to be in
            bounds.
        stated: The dimensions whose sizes the operator states, such as `x.0`, which
            need not be equal to those that they are read with; None for all.

    Raises:
        TensorlangError: the body refuses the call.
        OperatorError: it returns something other than computed tensors.
    """
    tracer = _Tracer(spec, call, read_as)
    with _told(spec.id):
        made = tracer.run(body)
        if isinstance(made, ir.Function):
            return tracer.verbatim(made)
        func, shown = tracer.function(made)
        if not whole:
            if stated is not None:
                check_shared(func, tracer.facts, {_given(name) for name in stated})
            stay_inside(func, tracer.facts)
            fix_small(func, tracer.facts)
    made = merged(_resolved(func, tracer.facts))
    return tracer.trace(fix_short(made, tracer.facts), shown)


@contextmanager
def _told(id: str) -> Iterator[None]:
    """Add the operator's id to errors, and use the definition's names in them."""
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
    """One run of a body: its placeholders, and facts about sizes."""

    def __init__(self, spec: Spec, call: Call, read_as: Sequence[str]) -> None:
        self.id, self.facts, self._keys = spec.id, Facts(), spec.keys
        self._attributes, self._dtypes = call.attributes, read_as
        self._left = list(zip(call.shapes, call.dtypes, read_as, strict=True))
        self._arrays: list[tuple[ir.Tensor, bool]] = []
        self._numbers: list[ir.Var] = []
        self._scalars: list[ir.Var] = []
        self._symbols: list[tuple[ir.Var | None, ...]] = []
        self._several = False
        self._impls: list[str] = []
        rest = [p for p in spec.ordered if p.name not in spec.shapes]
        self._given = {p.name: self._argument(p) for p in rest}
        self._given |= {p.name: self._shape(p) for p in spec.parameters if p.is_shape}

    # ----------------------------------------------------------- placeholders

    def _argument(self, parameter: Parameter) -> object:
        """The body's argument for a parameter."""
        name, kind = parameter.name, parameter.kind
        if isinstance(kind, Static):
            value = self._attributes[name]
            typed = kind.kind == "dtype" and value is not None
            return ir.as_dtype(value) if typed else value
        if isinstance(kind, Arrays):
            if kind.several:
                count = self._attributes[name]
                return [self._array(f"{name}{n}", kind) for n in range(count)]
            if name in self._attributes.get(ABSENT, "").split():
                return None
            if name in self._attributes.get(NUMBERS, "").split():
                beside = self._number_type(kind)
                self._numbers.append(ir.Var(name, ir.i32 if beside.is_bool else beside))
                number: ir.Expr = self._numbers[-1]  # kernels have no bool scalars
                return number.not_equal(0) if beside.is_bool else number
            made, packing = self._array(name, kind), self._attributes.get(name)
            return Strips(made, packing[0], sum(packing[1:])) if packing else made
        if parameter.is_a("share") and not self._attributes[name]:
            return None
        if parameter.is_a("scalar") or parameter.is_a("share"):
            wide = ir.f64 if "f64" in self._dtypes else ir.f32
            whole = type(parameter.default) is int
            self._scalars.append(ir.Var(name, ir.i64 if whole else wide))
            return self._scalars[-1]
        if parameter.is_a("key"):
            how = self._attributes[name]
            if how is None:
                return None
            words = self._array(name, Arrays(batch=len(self._left[0][0]) > 1))
            if words.ndim == 0 or words.shape[-1] != impl(how).key_words:
                raise ShapeError(
                    f"{name} has {impl(how).key_words} words of {how} in its last "
                    f"dimension, not the shape {words.shape}"
                )
            return KeyWords(how, words)
        if parameter.is_a("child"):
            self._scalars.append(ir.Var(name, ir.u64))
            return self._scalars[-1]
        if parameter.is_a("offset"):
            (how, *_) = (self._attributes[name] for name in self._keys)
            word = ir.DType(f"u{impl(how).bits}")
            self._scalars += (counter := (ir.Var("high", word), ir.Var("low", word)))
            return counter
        if parameter.is_a("derived"):
            return self._told(name)
        return ir.as_dtype(self._attributes[name])

    def _told(self, name: str) -> Any:
        """The scalars derived from a parameter: a list, a single one, or None."""
        said = derived_scalars(self._attributes.get(DERIVED, "")).get(name, ())
        made = [ir.Var(title, ir.DType(kind)) for title, kind in said]
        self._scalars += made
        return made if len(made) > 1 else next(iter(made), None)

    def _number_type(self, kind: Arrays) -> ir.DType:
        """The type of a number: that of the arrays, but f32 for narrow floats."""
        fitting = [name for name in self._dtypes if name in kind.dtypes]
        beside = ir.DType((fitting or self._dtypes)[-1])
        return ir.f32 if beside.is_float and beside != ir.f64 else beside

    def _array(self, name: str, kind: Arrays) -> ir.Tensor:
        shape, dtype, read_as = self._left.pop(0)
        sizes = self._sizes(shape, batch=kind.batch)
        extents = tuple(size.expr for size in sizes)
        buffer = ir.Buffer(f"{name}{_GIVEN}", ir.as_dtype(dtype), extents)
        converted = None if read_as == dtype else ir.as_dtype(read_as)
        made = ir.Tensor(buffer, None, sizes, converted)
        self._arrays.append((made, kind.inplace))
        return made

    def _shape(self, parameter: Parameter) -> Any:
        """The sizes of a parameter that is a shape, or of each one of a list."""
        if parameter.name in self._attributes.get(ABSENT, "").split():
            return None
        count = self._attributes[parameter.name] if parameter.several else 1
        number = parameter.is_a("elements")
        found = [self._sizes(self._left.pop(0)[0], batch=number) for _ in range(count)]
        called = (var for symbols in self._symbols[-count:] for var in symbols)
        self.facts.outer |= {var for var in called if var is not None}
        return found if parameter.several else found[0]

    def _sizes(self, shape: Shape, *, batch: bool = False) -> tuple[ir.Size, ...]:
        first = sum(map(len, self._symbols))
        made = tuple(
            ir.Size(self.facts, ir.as_expr(1))
            if extent == 1 and n >= batch
            else self.facts.symbol(f"s{first + n}", extent, batch=n < batch)
            for n, extent in enumerate(shape)
        )
        found = (size.expr if isinstance(size.expr, ir.Var) else None for size in made)
        self._symbols.append(tuple(found))
        return made

    def run(self, definition: Callable[..., object]) -> Any:
        """The result of the body."""
        token = TRACED.set(self.facts)
        try:
            return definition(**self._given)
        except ValueError as problem:
            if "values to unpack" not in str(problem):
                raise
            arrays = {n: a for n, a in self._given.items() if isinstance(a, ir.Tensor)}
            ranks = (f"{n} has {array.ndim}" for n, array in arrays.items())
            raise ShapeError(
                f"the definition expects another number of dimensions ({problem}); "
                f"{', '.join(ranks)}"
            ) from problem
        finally:
            TRACED.reset(token)

    # --------------------------------------------------------------- functions

    def function(self, made: Any) -> tuple[ir.Function, list[ir.Tensor]]:
        """The function for the tensors that the body returned, and its results."""
        given = list(made) if isinstance(made, tuple) else [made]
        outputs = [each.words if isinstance(each, KeyWords) else each for each in given]
        self._impls = [getattr(each, "impl", "") for each in given]
        updates = any(updated for _, updated in self._arrays)
        self._several = isinstance(made, tuple) and not updates
        if not outputs or not all(
            isinstance(each, ir.Tensor) and each.stage is not None for each in outputs
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
        del self._impls[: len(written)]
        func = ir.function(
            self.id.replace(".", "_"),
            [tensor for tensor, updated in arrays if not updated],
            outputs[len(written) :],
            inplace=list(zip(written, outputs, strict=False)),
            scalars=(*self._numbers, *self._scalars),
        )
        place = {tensor.buffer: n for n, (tensor, _) in enumerate(arrays)}
        params = sorted(func.params, key=lambda p: place.get(p.buffer, len(place)))
        return replace(func, params=tuple(params)), outputs[len(written) :]

    def verbatim(self, func: ir.Function) -> Trace:
        """The trace of a function that the body returned, for these sizes only.

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
            shape = tuple(ir.as_expr(int(size)) for size in tensor.shape)
            if (param.buffer.shape, param.buffer.dtype) != (shape, tensor.dtype):
                asked = ", ".join(map(str, shape))
                raise OperatorError(
                    f"{self.id}: {param.buffer.name} of the function {func.name} is "
                    f"{param.buffer}, but the array is {tensor.dtype}[{asked}]"
                )
        shapes = [param.buffer.shape for param in results]
        return self._trace(func, shapes, func, {})

    def trace(self, func: ir.Function, shown: Sequence[ir.Tensor]) -> Trace:
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
        shapes = [[self.facts.resolved(ir.as_expr(e)) for e in t.shape] for t in shown]
        names = {t.buffer.name: _plain(t.buffer.name) for t, _ in self._arrays}
        taken = {*names.values(), *(var.name for var in known)}
        made, sizes = with_sizes(func, known, taken)
        return self._trace(func, shapes, _with_names(made, names, taken), sizes)

    def _trace(
        self,
        func: ir.Function,
        shapes: Sequence[Sequence[ir.Expr]],
        canonical: ir.Function,
        sizes: Mapping[str, ir.Expr],
    ) -> Trace:
        facts = self.facts
        symbols = {var for called in self._symbols for var in called}
        outs = (param.buffer for param in func.params if param.role == "out")
        impls = self._impls or [""] * len(shapes)
        inputs = (param.buffer.shape for param in func.params if param.role != "out")
        return Trace(
            tuple(self._symbols),
            {var: n for var, n in facts.values.items() if var not in symbols},
            tuple(facts.guards),
            self._open(),
            canonical,
            tuple(inputs),
            tuple(
                Result(tuple(shape), out.shape, out.dtype, how)
                for shape, out, how in zip(shapes, outs, impls, strict=True)
            ),
            sizes,
            tuple(self._check(*check) for check in facts.checks),
            self._several,
        )

    def _open(self) -> dict[ir.Var, str]:
        """The symbols that are not fixed, and their names."""
        found = {var: self.facts.resolved(var) for var in self.facts.values}
        return {
            var: of.name if isinstance(of, ir.Var) else var.name
            for var, of in found.items()
            if not _is_number(of)
        }

    def _check(
        self, condition: ir.Expr, message: str, error: type[TensorlangError]
    ) -> Callable[[Sequence[Any]], None]:
        """A check that refuses a call's scalars if they do not meet a condition."""
        holds = compiled((*self._numbers, *self._scalars), condition)
        said = f"{self.id}: {message}"

        def check(scalars: Sequence[object]) -> None:
            if not holds(*scalars):
                raise error(said)

        return check


def _is_number(expr: ir.Expr) -> bool:
    return not isinstance(expr, ir.Var) and not any(
        isinstance(node, ir.Var) for node in ir.visit.walk(expr)
    )


def _resolved(func: ir.Function, facts: Facts) -> ir.Function:
    """The function with equal sizes unified and fixed sizes substituted."""

    def visit(node: Any) -> Any:
        if isinstance(node, ir.Buffer):
            return replace(node, shape=tuple(map(facts.resolved, node.shape)))
        if isinstance(node, ir.Var):
            return facts.resolved(node) if node in facts.same else node
        made = ir.visit.rebuild(node, visit)
        if isinstance(made, (ir.For, ir.Axis)):
            return replace(made, extent=facts.resolved(made.extent))
        return made

    made: ir.Function = visit(func)
    scalars = tuple(var for var in func.scalars if var not in facts.same)
    return replace(made, scalars=scalars)


def _given(dimension: str) -> str:
    """`x.0` with the name of the placeholder."""
    name, _, at = dimension.partition(".")
    return f"{name}{_GIVEN}.{at}"


def _plain(name: str) -> str:
    return name.removesuffix(_GIVEN)


def _with_names(
    func: ir.Function, names: Mapping[str, str], given: Collection[str]
) -> ir.Function:
    """The function with its inputs named as in the definition.

    Other buffers with such a name are renamed: the default name of `compute` is `y`.
    So are values named after an input, as `x_i` for `x[i]`.
    """
    taken = {node.name for node in ir.visit.walk(func) if hasattr(node, "name")} | {
        *given
    }
    held = [node for node in ir.visit.walk(func) if isinstance(node, ir.Buffer)]
    renamed = {
        buffer: replace(
            buffer, name=names.get(buffer.name) or ir.visit.fresh("out", taken)
        )
        for buffer in dict.fromkeys(held)
        if buffer.name in names or buffer.name in given
    }
    params = tuple(
        replace(param, buffer=renamed.get(param.buffer, param.buffer))
        for param in func.params
    )
    apart = {
        var: ir.Var(ir.visit.fresh(var.name.replace(_GIVEN, ""), taken), var.dtype)
        for var in bound(func.body)
        if var.name in given or _GIVEN in var.name
    }
    body = ir.visit.substitute(ir.visit.replace_buffers(func.body, renamed), apart)
    return replace(func, params=params, body=body)
