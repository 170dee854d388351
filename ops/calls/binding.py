"""The call function of an operator, generated from its signature.

It is generated once, like the `__init__` of a dataclass. It sorts the arguments of a
call into arrays, attributes and scalars, and tests only their Python types: all else is
part of the cache key of `tensors.call`. The function for
`softplus(x: Float, beta: Scalar = 1.0)` is

    def softplus(x, beta=1.0, *, target=None, out=None):
        if type(beta) is not float: beta = __fit_beta(beta)
        return __call(__op, (x,), __attributes_6, (beta,), target, out)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np

from tensorlang import ir, lazy, runtime
from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.calls.dispatch import own
from tensorlang.ops.calls.packed_weights import PackedWeight
from tensorlang.ops.calls.tensors import call, viewed
from tensorlang.ops.spec.promotion import promoted, raised_by
from tensorlang.ops.spec.signature import (
    ABSENT,
    DERIVED,
    NUMBERS,
    RAISED,
    Arrays,
    Domain,
    Other,
    Parameter,
    Static,
    spec,
)

with lazy.modules(__name__):  # needed when a call is first bound
    import ml_dtypes

    from tensorlang.ops.random import keys as keys_of
    from tensorlang.ops.random import states

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch, Operator

_PLAIN: Final = {np.ndarray}
_PYTHON: Final = (float, int, bool, np.float64)  # the types of numbers
# the largest f16: every float type represents numbers up to this
IN_ALL: Final = 65504.0


class _Piece(NamedTuple):
    """The code of a parameter in the generated function."""

    # types accepted unchanged; None if only the default is
    types: tuple[type, ...] | None = ()
    # converts all other values to one of these types
    fit: Callable[..., Any] | None = None
    array: str = ""  # code that it adds to the arrays,
    attribute: str = ""  # to the attributes,
    scalar: str = ""  # and to the scalars
    after: str = ""  # code to run once the launch is prepared
    behind: str = ""  # code that it adds after all arrays
    rows: bool = False  # whether tuples of numbers are accepted too
    test: str = ""  # a condition on values that are accepted unchanged


def _piece(parameter: Parameter, keys: Sequence[str]) -> _Piece:
    name, kind = parameter.name, parameter.kind
    match kind:
        case Arrays(several=True):
            return _Piece((tuple,), _listed, f"*{name}", f"len({name})")
        case Arrays(packed=True):
            return _Piece(array=name, attribute=f"__packing_of_{name}")
        case Arrays():
            return _Piece(array=name)
        case Static(levels=levels) if levels:
            return _Piece((type(None),), kind.fitted, attribute=name)
        case Static():
            types = (*kind.types, *map(type, kind.choices))
            if tuple not in types:
                return _Piece(types, kind.fitted, attribute=name)
            plain = tuple(each for each in types if each is not tuple)
            return _Piece(plain, kind.fitted, attribute=name, rows=True)
        case Domain(type=type_, test=test):
            return _Piece((type_,), kind.fitted, test=test.format(name))
        case Other("scalar") if type(parameter.default) is int:
            return _Piece((int,), _whole, scalar=name)
        case Other("scalar"):
            return _Piece((float,), number, scalar=name)
        case Other("share"):
            left = f"*__fit_{name}({name})"
            return _Piece(fit=_left, attribute=f"{name} != 0.0", scalar=left)
        case Other("key"):
            used = kind.verb and f"{name}.consume({kind.verb!r}, 3)"
            fit = _key if used else _old_key
            if kind.verb == "folded":  # with a child's number
                used, fit = "", _folded_key
            if kind.optional:
                words = f"*(() if {name} is None else ({name}.words,))"
                impl = f"None if {name} is None else {name}.impl"
                used = used and f"{name} is None or {used}"
                types = (keys_of.Key, type(None))
                return _Piece(types, fit, attribute=impl, after=used, behind=words)
            return _Piece(
                (keys_of.Key,), fit, f"{name}.words", f"{name}.impl", after=used
            )
        case Other("child"):
            test, after = f"0 <= {name} < 1 << 64", f"{keys[0]}.fold({name})"
            return _Piece((int,), _child, scalar=name, after=after, test=test)
        case Other("offset"):
            return _Piece(None, _offset, "", f"{name} != 0", f"{name}, 0")
        case Other("derived"):
            return _Piece(attribute="__variant")
        case Other("dtype"):
            return _Piece((str,), _element_type, attribute=name)
        case Other("elements", counted=fit) if fit is not None:
            test = f"0 <= {name} < 1 << 31"
            return _Piece((int,), fit, attribute=f"({name},)", test=test)
        case Other("shape" | "elements", optional=optional):
            types = (tuple, type(None)) if optional else (tuple,)
            return _Piece(types, shape_of, attribute=name)
        case Other("like", several=True):
            return _Piece(fit=_likes, attribute=f"__fit_{name}({name})")
        case Other("like"):
            return _Piece((np.ndarray,), _like, attribute=f"{name}.shape")
    return _Piece(attribute=name)


def bound(op: Operator) -> Callable[..., Launch]:
    """The call function of an operator: from a call's arguments to its launch."""
    pieces = {  # derived scalars share one piece
        DERIVED if p.is_a("derived") else p.name: _piece(p, op.spec.keys)
        for p in op.parameters
    }
    given: dict[str, Any] = {
        "__name__": __name__,  # where a key was used is looked for outside of it
        "__op": op,  # names that no parameter and no operator has
        "__call": viewed if op.view else op.ending,
        "__mixed": mixed,
        "__array": np.ndarray,
        "__host": op.host,
    }
    arguments = ", ".join(_arguments(op, given))
    lines, parameters = [f"def {op.__name__}({arguments}):"], op.spec.parameters
    extras = [p.name for p in parameters if p.is_a("share") or p.is_extra]
    usual = {name: piece for name, piece in pieces.items() if name not in extras}
    for name, piece in usual.items():
        lines += _fitting(op.id, name, piece, given)
    lines += _unpacking(parameters, given)
    lines += _transposing(parameters, given)
    for name, (other, launch) in op.instead.items():
        given |= {f"__other_{name}": other, f"__launch_{name}": launch}
        named = (f"{of}={of}" for of in (*pieces, *op.shared))
        lines.append(f"if type({name}) is __other_{name}:")
        lines.append(f"    return __launch_{name}({', '.join(named)})")
    if op.host:
        lines.append(_hosted(op))
        pieces = {p.name: _piece(p, op.spec.keys) for p in parameters}
    if op.derive is not None:
        lines += _deriving(op.derive, parameters, given)
    if op.spec.keys and not extras and "out" in op.shared:
        given |= {"__known": op.kernels.get, "__consume": states.consume}
        lines += _short(op, pieces)
    if extras:
        tests = (f"{name} is __default_{name}" for name in extras)
        lines.append(f"if {' and '.join(tests)}:")
        handed = _Handing(op, usual, given).lines()
        lines += (f"    {line}" for line in handed)
        for name in extras:
            lines += _fitting(op.id, name, pieces[name], given)
    lines += _Handing(op, pieces, given).lines()
    source = "\n    ".join(lines)
    exec(compile(source, f"<signature of {op.id}>", "exec"), given)  # noqa: S102
    made: Callable[..., Launch] = given[op.__name__]
    return made


def _deriving(
    derive: Callable[..., object],
    parameters: Sequence[Parameter],
    given: dict[str, Any],
) -> Iterator[str]:
    """The lines that derive scalars; those for default arguments are precomputed."""
    given["__derive"] = derive
    names = list(inspect.signature(derive).parameters)
    made = f"__variant, __told = __derive({', '.join(names)})"
    usual = {p.name: p.default for p in parameters if p.name in names and not p.needed}
    if len(usual) == len(names):
        given["__usual"] = derive(**usual)
        tests = " and ".join(f"{name} is __default_{name}" for name in names)
        yield f"if {tests}: __variant, __told = __usual"
        made = f"else: {made}"
    yield made


def _short(op: Operator, pieces: Mapping[str, _Piece]) -> Iterator[str]:
    """The fast path for draws into `out`, inlined from `tensors.call`."""
    given = [piece.array for piece in pieces.values() if piece.array]
    arrays = [array for array in given if array in op.spec.arrays]
    named = (piece.attribute for piece in pieces.values() if piece.attribute)
    facts = (f"({array}.shape, {array}.dtype)" for array in given)
    scalars = (piece.scalar for piece in pieces.values() if piece.scalar)
    tests = [f"type({array}) is __array" for array in ("out", *arrays)]
    tests += [f"type({key}) is __types_{key}" for key in op.spec.keys]
    yield f"if {' and '.join(tests)}:"
    yield f"    ready = __known((target, {', '.join([*named, *facts])}))"
    yield "    if ready is not None and ready.plain is not None:"
    yield "        shape_, inner, dtype_ = ready.plain"
    yield "        fits = out.shape == shape_ and out.dtype is dtype_"
    yield "        if fits and out.flags.carray:"
    for key, verb in ((p.name, p.verb) for p in op.spec.parameters if p.verb):
        yield f"            __consume({key}._ledger, {key}._ids, {verb!r}, 2)"
    flat = "out if inner is shape_ else out.reshape(inner)"
    made = f"({', '.join([*given, flat, *scalars])}){_told(pieces)}"
    yield f"            return ready.launch, {made}, out"


def _told(pieces: Mapping[str, _Piece]) -> str:
    """The code that appends derived scalars to the others."""
    return " + __told" if DERIVED in pieces else ""


def _fitting(id: str, name: str, piece: _Piece, given: dict[str, Any]) -> Iterator[str]:
    """The lines that convert an argument."""
    if piece.fit is None:
        return
    fit = given[f"__fit_{name}"] = partial(piece.fit, id, name)
    if piece.types is None:
        yield f"if {name} is not __default_{name}: {name} = __fit_{name}({name})"
        return
    if piece.rows:
        given[f"__known_{name}"] = _remembered(fit)
        yield f"if type({name}) is tuple:"
        yield f"    try: {name} = __known_{name}(*{name})"
        yield f"    except TypeError: {name} = __fit_{name}({name})"
    elif not piece.types:
        return
    one = len(piece.types) == 1
    given[f"__types_{name}"] = piece.types[0] if one else piece.types
    test = f"type({name}) {'is not' if one else 'not in'} __types_{name}"
    if piece.test:
        test = f"({test} or not {piece.test})"
    known = type(given.get(f"__default_{name}", ...)) in piece.types
    if known or (piece.test and f"__default_{name}" in given):
        test = f"{name} is not __default_{name} and {test}"
    if piece.array.startswith("*"):
        yield f"if type({name}) is list: {name} = tuple({name})"
        test += f" or not {name}"
    yield f"{'elif' if piece.rows else 'if'} {test}: {name} = __fit_{name}({name})"


def _unpacking(parameters: Sequence[Parameter], given: dict[str, Any]) -> Iterator[str]:
    """The lines that unpack packed weights."""
    for name, kind in ((p.name, p.kind) for p in parameters):
        if isinstance(kind, Arrays) and kind.packed:
            given["__packed"] = PackedWeight
            yield f"__packing_of_{name} = 0"
            yield f"if type({name}) is __packed:"
            yield f"    {name}, __packing_of_{name} = {name}.of(__op.id)"


def _transposing(
    parameters: Sequence[Parameter], given: dict[str, Any]
) -> Iterator[str]:
    """The lines that pass transposed views as they lie in memory."""
    for name, kind in ((p.name, p.kind) for p in parameters):
        if isinstance(kind, Arrays) and kind.transposed:
            given["__lying"] = runtime.host_arrays.as_stored
            yield f"if type({name}) is not __array or not {name}.flags.c_contiguous:"
            yield f"    {name}, {kind.transposed} = __lying({name}, {kind.transposed})"


def _arguments(op: Operator, given: dict[str, Any]) -> Iterator[str]:
    keyword = False
    for parameter in op.parameters:
        if parameter.keyword and not keyword:
            keyword = True
            yield "*"
        if parameter.needed:
            yield parameter.name
        else:
            given[f"__default_{parameter.name}"] = parameter.default
            yield f"{parameter.name}=__default_{parameter.name}"
    if not keyword:
        yield "*"
    yield from (f"{name}=None" for name in op.shared)


def _hosted(op: Operator) -> str:
    """The line that calls `host`; see `Operator`."""
    assert op.host is not None
    asked = spec(op.id, op.host).parameters
    taken = [f"{p.name}={p.name}" if p.keyword else p.name for p in asked]
    arrays = op.spec.arrays
    made = [p.name for p in asked if p.name in arrays]
    made += [p.name for p in op.spec.parameters if p.name not in arrays]
    return f"{', '.join(made)}, = __host({', '.join(taken)})"


class _Handing:
    """The lines that pass the arguments on."""

    def __init__(
        self, op: Operator, pieces: Mapping[str, _Piece], given: dict[str, Any]
    ) -> None:
        self._op, self._given = op, given
        self._arrays = [p.array for p in pieces.values() if p.array]
        self._scalars = [p.scalar for p in pieces.values() if p.scalar]
        self._named = [
            f"{n!r}: {p.attribute}" for n, p in pieces.items() if p.attribute
        ]
        self._after = [p.after for p in pieces.values() if p.after]
        self._told = _told(pieces)
        self._behind = [p.behind for p in pieces.values() if p.behind]

    def lines(self) -> Iterator[str]:
        """A fast path for arrays, a slow one for numbers and omitted operands.

        If an omitted operand may be replaced by a number, it takes the slow path.
        """
        kinds = list(self._op.spec.arrays.values())
        special = any(kind.number or kind.optional for kind in kinds)
        if not special or self._op.ending is not call:
            yield from self._returned("__call", self._arrays, self._attributes({}))
            return
        *others, last = self._arrays
        plain = [f"type({name}) is __array" for name in others]
        yield f"if {' and '.join([*plain, f'type({last}) is __array'])}:"
        yield from self._returned("    __call", self._arrays, self._attributes({}))
        if plain and kinds[-1].number:
            fits = f"{-IN_ALL} <= {last} <= {IN_ALL}"
            float_ = (
                f"type({last}) is float and {fits} and {others[-1]}.dtype.kind == 'f'"
            )
            yield f"if {' and '.join([*plain, float_])}:"
            attributes = self._attributes({NUMBERS: last, ABSENT: ""})
            yield from self._returned("    __call", others, attributes, [last])
        if not self._op.missing:
            yield from self._bare(kinds)
        yield from self._returned("__mixed", self._arrays, self._attributes({}))

    def _bare(self, kinds: Sequence[Arrays]) -> Iterator[str]:
        """The fast path for arrays only, without some optional ones."""
        pairs = list(zip(self._arrays, kinds, strict=True))
        able = [name for name, kind in pairs if kind.optional]
        if len(able) == len(pairs):
            return
        numbers = {NUMBERS: ""} if any(kind.number for kind in kinds) else {}
        ends = [able[count:] for count in range(len(able))]
        for absent in (*ends, *([name] for name in able[:-1])):
            held = [name for name, _ in pairs if name not in absent]
            tests = [f"type({name}) is __array" for name in held]
            yield f"if {' and '.join(tests + [f'{name} is None' for name in absent])}:"
            attributes = self._attributes({**numbers, ABSENT: " ".join(absent)})
            yield from self._returned("    __call", held, attributes)

    def _attributes(self, more: dict[str, str]) -> str:
        """Attributes by name: a shared dictionary if none depends on the call."""
        if self._named:
            fixed = [f"{name!r}: {value!r}" for name, value in more.items()]
            return f"{{{', '.join([*fixed, *self._named])}}}"
        name = f"__attributes_{len(self._given)}"
        self._given[name] = more
        return name

    def _returned(
        self,
        how: str,
        arrays: Sequence[str],
        attributes: str,
        numbers: Sequence[str] = (),
    ) -> Iterator[str]:
        indent, how = how[: len(how) - len(how.lstrip())], how.lstrip()
        behind = "".join(f"{array}, " for array in self._behind)
        held = "".join(f"{array}, " for array in arrays)
        scalars = "".join(f"{scalar}, " for scalar in [*numbers, *self._scalars])
        given = f"{attributes}, ({scalars}){self._told}, {', '.join(self._op.shared)}"
        if how == "__mixed" and behind:
            given += f", ({behind})"
        elif behind:
            held += behind
        made = f"{how}(__op, ({held}), {given})"
        if self._after:
            yield f"{indent}launch = {made}"
            yield from (f"{indent}{after}" for after in self._after)
            made = "launch"
        yield f"{indent}return {made}"


# ------------------------------------------------------------------ numbers for arrays


class ReadAs(NamedTuple):
    """The type that arrays beside numbers are read in."""

    kind: str
    name: str
    attributes: dict[str, Any]  # attributes that tell the kernel


class Pattern(NamedTuple):
    """The operands of a call that are arrays, and those that are numbers."""

    arrays: tuple[int, ...] | None  # positions of the arrays; None if all operands are
    # names and positions of the numbers; None for omitted operands
    numbers: tuple[tuple[str, int | None], ...]
    beside: tuple[int, ...]  # positions of the arrays whose type the numbers take
    allowed: tuple[str, ...]  # types in which these may be read
    raised: str  # type that the numbers give to arrays of a lower kind
    attributes: dict[str, Any]  # attributes that describe this to the kernel
    # for the types of the arrays beside, those that they are read in
    read_as: dict[tuple[np.dtype, ...], ReadAs]


def _pattern(op: Operator, types: Sequence[type]) -> Pattern:
    """The pattern of calls with these types; ArgumentError if there is no array."""
    arrays, absent = [], []
    beside: list[int] = []
    allowed: tuple[str, ...] = ()
    numbers: dict[str, int | None] = {}
    # numbers take the type of arrays of their kind, if there are any
    said = {kind.says for kind in op.spec.arrays.values() if kind.number}
    for n, ((name, kind), type_) in enumerate(
        zip(op.spec.arrays.items(), types, strict=True)
    ):
        if type_ is NoneType and kind.optional:
            absent.append(name)
        elif type_ in _PYTHON and kind.number:
            numbers[name] = n
        else:
            arrays.append(n)
            typed = kind.says in said if said else kind.dtypes != ("bool",)
            if typed:
                beside, allowed = [*beside, n], kind.dtypes
    if not beside:
        able = [name for name, kind in op.spec.arrays.items() if kind.number]
        those = "the operands" if len(able) == len(types) else " and ".join(able)
        raise ArgumentError(
            f"{op.id}: one of {those} has to be an array, whose type the other one "
            "takes"
        )
    filled = [name for name in absent if name in op.missing]
    if len(filled) < len(op.missing):
        numbers |= dict.fromkeys(filled)
        absent = [name for name in absent if name not in filled]
    named = [name for name in op.spec.arrays if name in numbers]
    given = {NUMBERS: " ".join(named), ABSENT: " ".join(absent)}
    return Pattern(
        tuple(arrays) if len(arrays) < len(types) else None,
        tuple((name, numbers[name]) for name in named),
        tuple(beside),
        allowed,
        raised_by(types[n] for n in numbers.values() if n is not None),
        given if named or absent else {},
        {},
    )


def _read_as(op: Operator, pattern: Pattern, dtypes: Sequence[np.dtype]) -> ReadAs:
    """The type in which arrays of these types are read beside the numbers."""
    found, attributes = ir.as_dtype(dtypes[-1]), pattern.attributes
    names = tuple([ir.as_dtype(each).name for each in dtypes])
    common = promoted(names, pattern.allowed) if op.spec.promotes else ""
    if common:
        raised = promoted(names, pattern.allowed, pattern.raised)
        found = ir.DType(raised or common)
        if raised not in ("", common):
            attributes = attributes | {RAISED: raised}
    return ReadAs(found.kind, found.name, attributes)


def mixed(  # noqa: PLR0917 - as `call`
    op: Operator,
    operands: Sequence[object],
    attributes: dict[str, Any],
    scalars: tuple[object, ...],
    target: object,
    out: object,
    behind: tuple[object, ...] = (),
) -> Launch:
    """The launch of a call where some arrays may be Python numbers, or left out.

    A number takes the type of the array operands, or raises them to the type of its
    kind (`tensorlang.ops.spec.promotion`). A `np.float64`, which is a Python float, is
    a number; other NumPy scalars are arrays of their type.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    types = tuple([type(value) for value in operands])
    pattern = op.patterns.get(types)
    if pattern is None:
        own(*operands)
        pattern = op.patterns[types] = _pattern(op, types)
    arrays, given = operands, pattern.attributes
    if pattern.arrays is not None:
        arrays = [operands[n] for n in pattern.arrays]
    if pattern.numbers:
        if {*map(type, arrays)} != _PLAIN:
            own(*arrays)
        dtypes = tuple([dtype_of(op.id, operands[n]) for n in pattern.beside])
        read = pattern.read_as.get(dtypes)
        if read is None:
            read = pattern.read_as[dtypes] = _read_as(op, pattern, dtypes)
        kind, name, given = read
        numbers = [
            number_of(
                op.id,
                operand,
                op.missing[operand](name) if n is None else operands[n],
                kind,
                name,
            )
            for operand, n in pattern.numbers
        ]
        scalars = (*numbers, *scalars)
    if attributes:
        given = given | attributes
    if behind:
        arrays = (*arrays, *behind)
    return call(op, arrays, given, scalars, target, out)


def dtype_of(id: str, array: Any) -> np.dtype:
    """The element type of an array."""
    if type(array) is not np.ndarray:
        array = runtime.foreign_arrays.as_placed(array, f"{id}: an operand")
    made: np.dtype = array.dtype
    return made


@cache
def _beyond(name: str) -> float:
    """The smallest number that rounds to infinity: half an ulp above the maximum."""
    found = ml_dtypes.finfo(ir.as_dtype(name).numpy)
    largest = float(found.max)
    exponent = math.frexp(largest)[1]
    return largest + math.ldexp(float(found.eps), exponent - 2)


@cache
def _integers(name: str) -> tuple[int, int]:
    """The range of an integer type."""
    found = np.iinfo(ir.as_dtype(name).numpy)
    return int(found.min), int(found.max)


def number_of(id: str, operand: str, value: Any, kind: str, name: str) -> object:
    """The number as an argument of a kernel for arrays of a type.

    Raises:
        DTypeError: the type does not represent such numbers.
    """
    if type(value) is np.float64:
        value = float(value)
    if kind == "float":
        try:
            number = float(value)
        except OverflowError:
            raise DTypeError(f"{id}: {name} holds no number so large") from None
        if IN_ALL < abs(number) < math.inf and abs(number) >= _beyond(name):
            raise DTypeError(
                f"{id}: {number} rounds to an infinity in the {name} beside it; cast "
                "the array, or give math.inf where that is meant"
            )
        return number
    if type(value) is bool:
        return value if kind == "bool" else int(value)
    if type(value) is float or kind == "bool":
        raise DTypeError(
            f"{id}: {value!r} is no value of the {name} beside it; cast the array, or "
            "give such a value"
        )
    least, most = _integers(name)
    if not least <= value <= most:
        raise DTypeError(f"{id}: {operand} is {value}; {name} holds {least} to {most}")
    return value


# ------------------------------------------------------------------- single arguments


def number(id: str, name: str, value: Any) -> float:
    """The value as a float; ArgumentError for what is no number or has a gradient."""
    if getattr(value, "requires_grad", False):
        raise ArgumentError(
            f"{id}: {name} is a number without a gradient; detach it, as by .item()"
        )
    try:
        return float("text" if isinstance(value, (str, bytes)) else value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{id}: {name} is a number, not {value!r:.80}") from None


def _remembered(fit: Callable[[Any], object]) -> Callable[..., object]:
    """Memoise `fit` for tuples of numbers, by their values and types."""

    @lru_cache(maxsize=1024, typed=True)
    def fitted(*value: object) -> Any:
        return fit(value)

    return fitted


def _left(id: str, name: str, value: object) -> tuple[float, ...]:
    """1 minus a share, as an f32; an empty tuple if the share is 0."""
    share = number(id, name, value)
    if not 0.0 <= share < 1.0:
        raise ArgumentError(
            f"{id}: 0 <= {name} < 1, not {share}; it is the share that is dropped (of "
            "1 there would be nothing left)"
        )
    return (float(np.float32(1.0 - share)),) if share else ()


def _whole(id: str, name: str, value: object) -> int:
    if isinstance(value, np.integer):
        return int(value)
    raise ArgumentError(f"{id}: {name} is a whole number, not {value!r:.80}")


def _listed(id: str, name: str, value: object) -> tuple[object, ...]:
    if type(value) is list and value:
        return tuple(value)
    raise ArgumentError(
        f"{id}: {name} is a list of arrays, at least one, not {value!r:.80}"
    )


def shape_of(id: str, name: str, value: Any) -> tuple[int, ...]:
    """The value as a shape; ShapeError if it is not one."""
    given = (value,) if isinstance(value, (int, np.integer)) else value
    whole = isinstance(given, (list, tuple)) and not isinstance(value, bool)
    if not whole or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in given):
        raise ShapeError(
            f"{id}: {name} is a tuple of whole numbers from 0 on, not {value!r:.80}"
        )
    return tuple(map(int, given))


class _Like(NamedTuple):
    shape: tuple[int, ...]


def _like(id: str, name: str, value: object) -> _Like:
    own(value)
    if not hasattr(value, "shape"):
        raise ArgumentError(f"{id}: {name} is an array, not {value!r:.80}")
    return _Like(tuple(value.shape))


def _likes(id: str, name: str, value: object) -> tuple[tuple[int, ...], ...]:
    arrays = value if type(value) is tuple and value else _listed(id, name, value)
    return tuple(
        [
            array.shape if type(array) is np.ndarray else _like(id, name, array).shape
            for array in arrays
        ]
    )


def _key(id: str, name: str, value: object) -> Any:
    """A key, to be consumed once all other arguments are checked."""
    own(value)
    later = getattr(value, "later", None)  # of a `StatefulKey` or `LaterKey`
    if later is not None:
        return later()
    raise ArgumentError(
        f"{id}: {name} is a Key, not {type(value).__name__}; make one with "
        "random.key(seed)"
    )


def _old_key(id: str, name: str, value: object) -> NoReturn:
    own(value)
    raise ArgumentError(
        f"{id}: {name} is the Key that was used before, not {type(value).__name__}"
    )


def _folded_key(id: str, name: str, value: object) -> NoReturn:
    own(value)
    raise ArgumentError(f"{id}: {name} is a Key, not {type(value).__name__}")


def _child(id: str, name: str, value: object) -> int | np.ndarray:
    """The number of a child, or an array of numbers, u64."""
    own(value)
    try:
        given = np.asarray(value)
        whole = given.dtype.kind in "iu" and (not given.size or int(given.min()) >= 0)
    except (OverflowError, ValueError):
        whole = False
    if not whole:
        raise ArgumentError(
            f"{id} takes whole numbers, 0 <= {name} < 2^64, not {str(value)[:80]}"
        )
    return given.astype(np.uint64) if given.ndim else int(given)


def _offset(id: str, name: str, value: Any) -> int:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not 0 <= value < 1 << 64:
        raise ArgumentError(
            f"{id}: {name} counts elements, 0 <= {name} < 2^64, not {value!r:.80}"
        )
    return int(value)


def _element_type(_id: str, _name: str, value: Any) -> str:
    own(value)
    return ir.as_dtype(value).name
