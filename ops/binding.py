"""The function that an operator is called by, written from its signature.

Like the `__init__` of a dataclass it is generated once. It brings the arguments of a
call into arrays, attributes and scalars, and looks at no more than their Python types:
calls like those before are known by all else (`tensors.call`). That of
`softplus(x: Float, beta: Scalar = 1.0)` is

    def softplus(x, beta=1.0, *, target=None, out=None):
        if type(beta) is not float: beta = __fit_beta(beta)
        return __call(__op, (x,), __attributes_6, (beta,), target, out)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.signature import ABSENT, NUMBERS, Arrays, Other, Parameter, Static
from tensorlang.ops.tensors import call, viewed

if TYPE_CHECKING:
    from tensorlang.ops.definition import Definition
    from tensorlang.ops.operator import Launch

_PLAIN: Final = {np.ndarray}
_ARRAY, _NUMBER, _ABSENT = 0, 1, 2
_CODES: Final[dict[type, int]] = {
    **dict.fromkeys((float, int, bool, np.float64), _NUMBER),
    type(None): _ABSENT,
}
IN_ALL: Final = 65504.0  # the largest f16: every float type holds numbers up to this


class _Piece(NamedTuple):
    """What a parameter adds to the function.

    Attributes:
        types: The types that are taken as they are.
        fit: Makes one of these of anything else.
        array: What it adds to the arrays,
        attribute: to the attributes,
        scalar: and to the scalars.
        after: What is done once the launch is prepared.
        behind: What it adds behind all arrays.
        rows: Whether tuples of numbers are taken too.
    """

    types: tuple[type, ...] = ()
    fit: Callable[..., Any] | None = None
    array: str = ""
    attribute: str = ""
    scalar: str = ""
    after: str = ""
    behind: str = ""
    rows: bool = False


def _piece(parameter: Parameter) -> _Piece:
    name, kind = parameter.name, parameter.kind
    match kind:
        case Arrays(several=True):
            return _Piece((tuple,), _listed, f"*{name}", f"len({name})")
        case Arrays(packed=True):
            return _Piece(array=name, attribute=f"__columns_of_{name}")
        case Arrays():
            return _Piece(array=name)
        case Static():
            types = (*kind.types, *map(type, kind.choices))
            if tuple not in types:
                return _Piece(types, kind.fitted, attribute=name)
            plain = tuple(each for each in types if each is not tuple)
            return _Piece(plain, kind.fitted, attribute=name, rows=True)
        case Other("scalar") if type(parameter.default) is int:
            return _Piece((int,), _whole, scalar=name)
        case Other("scalar"):
            return _Piece((float,), number, scalar=name)
        case Other("share"):
            left = f"*__fit_{name}({name})"
            return _Piece(fit=_left, attribute=f"{name} != 0.0", scalar=left)
        case Other("key"):
            from tensorlang.ops.random.keys import Key  # noqa: PLC0415 - stands above

            used = f"{name}.consume('drawn from')"
            if kind.optional:
                words = f"*(() if {name} is None else ({name}.words,))"
                impl = f"None if {name} is None else {name}.impl"
                used = f"{name} is None or {used}"
                types = (Key, type(None))
                return _Piece(types, _key, attribute=impl, after=used, behind=words)
            return _Piece((Key,), _key, f"{name}.words", f"{name}.impl", after=used)
        case Other("shape"):
            return _Piece((tuple,), _shape, attribute=name)
        case Other("like", several=True):
            return _Piece(fit=_likes, attribute=f"__fit_{name}({name})")
        case Other("like"):
            return _Piece((np.ndarray,), _like, attribute=f"{name}.shape")
    return _Piece(attribute=name)


def bound(op: Definition) -> Callable[..., Launch]:
    """The function of an operator, from a call's arguments to its launch."""
    pieces = {p.name: _piece(p) for p in op.spec.parameters}
    given: dict[str, Any] = {
        "__name__": __name__,  # where a key was used is looked for outside of it
        "__op": op,  # names that no parameter and no operator has
        "__call": viewed if op.view else call,
        "__mixed": mixed,
        "__array": np.ndarray,
    }
    parameters = op.spec.parameters
    lines = [f"def {op.__name__}({', '.join(_arguments(parameters, given))}):"]
    extras = [p.name for p in parameters if p.is_a("share") or p.is_extra]
    usual = {name: piece for name, piece in pieces.items() if name not in extras}
    for name, piece in usual.items():
        lines += _fitting(op.id, name, piece, given)
    lines += _unpacking(parameters, given)
    if extras:
        tests = (f"{name} is __default_{name}" for name in extras)
        lines.append(f"if {' and '.join(tests)}:")
        handed = _Handing(usual, given).lines(parameters, filled=bool(op.missing))
        lines += (f"    {line}" for line in handed)
        for name in extras:
            lines += _fitting(op.id, name, pieces[name], given)
    lines += _Handing(pieces, given).lines(parameters, filled=bool(op.missing))
    source = "\n    ".join(lines)
    exec(compile(source, f"<signature of {op.id}>", "exec"), given)  # noqa: S102
    made: Callable[..., Launch] = given[op.__name__]
    return made


def _fitting(id: str, name: str, piece: _Piece, given: dict[str, Any]) -> Iterator[str]:
    """The lines that make of an argument what is handed on."""
    if piece.fit is None:
        return
    fit = given[f"__fit_{name}"] = partial(piece.fit, id, name)
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
    if type(given.get(f"__default_{name}", ...)) in piece.types:
        test = f"{name} is not __default_{name} and {test}"
    if piece.array.startswith("*"):
        yield f"if type({name}) is list: {name} = tuple({name})"
        test += f" or not {name}"
    yield f"{'elif' if piece.rows else 'if'} {test}: {name} = __fit_{name}({name})"


def _unpacking(parameters: Sequence[Parameter], given: dict[str, Any]) -> Iterator[str]:
    """What takes packed weights apart."""
    for name, kind in ((p.name, p.kind) for p in parameters):
        if isinstance(kind, Arrays) and kind.packed:
            from tensorlang.ops.nn.packing import PackedWeight  # noqa: PLC0415 - above

            given["__packed"] = PackedWeight
            yield f"__columns_of_{name} = 0"
            yield f"if type({name}) is __packed:"
            yield f"    {name}, __columns_of_{name} = {name}.of(__op.id)"


def _arguments(parameters: Sequence[Parameter], given: dict[str, Any]) -> Iterator[str]:
    keyword = False
    for parameter in parameters:
        if parameter.keyword and not keyword:
            keyword = True
            yield "*"
        if parameter.needed:
            yield parameter.name
        else:
            given[f"__default_{parameter.name}"] = parameter.default
            yield f"{parameter.name}=__default_{parameter.name}"
    yield "target=None, out=None" if keyword else "*, target=None, out=None"


class _Handing:
    """The lines that hand the arguments on."""

    def __init__(self, pieces: Mapping[str, _Piece], given: dict[str, Any]) -> None:
        self._given = given
        self._arrays = [p.array for p in pieces.values() if p.array]
        self._scalars = [p.scalar for p in pieces.values() if p.scalar]
        self._named = [
            f"{n!r}: {p.attribute}" for n, p in pieces.items() if p.attribute
        ]
        self._after = [p.after for p in pieces.values() if p.after]
        self._behind = [p.behind for p in pieces.values() if p.behind]

    def lines(self, parameters: Sequence[Parameter], *, filled: bool) -> Iterator[str]:
        """Arrays as they are go the short way, numbers and what is left out another.

        Where what is left out may be `filled` with a number, all that goes the other.
        """
        kinds = [p.kind for p in parameters if isinstance(p.kind, Arrays)]
        if not any(kind.number or kind.optional for kind in kinds):
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
        if not filled:
            yield from self._bare(kinds)
        yield from self._returned("__mixed", self._arrays, self._attributes({}))

    def _bare(self, kinds: Sequence[Arrays]) -> Iterator[str]:
        """The short way for arrays alone, without one that may be left out, or more."""
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
        """Attributes by name: a dictionary that is there where nothing is given."""
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
        given = f"{attributes}, ({scalars}), target, out"
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


class Pattern(NamedTuple):
    """Which operands of a call are arrays, and which are numbers.

    Attributes:
        arrays: The positions of the arrays; None where all are.
        numbers: The names and positions of the numbers; None of what is left out.
        beside: The position of the array whose type the numbers take.
        attributes: What the kernel is told of it.
    """

    arrays: tuple[int, ...] | None
    numbers: tuple[tuple[str, int | None], ...]
    beside: int
    attributes: dict[str, Any]


def _pattern(op: Definition, codes: Sequence[int]) -> Pattern:
    """What calls are whose operands are of these kinds.

    Raises:
        ArgumentError: no operand is an array.
    """
    arrays, absent, beside = [], [], None
    numbers: dict[str, int | None] = {}
    # numbers take the type of arrays like them; where there are none, nobody asks
    said = {kind.says for kind in op.spec.arrays.values() if kind.number}
    for n, ((name, kind), code) in enumerate(
        zip(op.spec.arrays.items(), codes, strict=True)
    ):
        if code == _ABSENT and kind.optional:
            absent.append(name)
        elif code == _NUMBER and kind.number:
            numbers[name] = n
        else:
            arrays.append(n)
            typed = kind.says in said if said else kind.dtypes != ("bool",)
            beside = n if typed else beside
    if beside is None:
        able = [name for name, kind in op.spec.arrays.items() if kind.number]
        those = "the operands" if len(able) == len(codes) else " and ".join(able)
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
        tuple(arrays) if len(arrays) < len(codes) else None,
        tuple((name, numbers[name]) for name in named),
        beside,
        given if named or absent else {},
    )


def mixed(  # noqa: PLR0917 - as `call`
    op: Definition,
    operands: Sequence[Any],
    attributes: dict[str, Any],
    scalars: tuple[Any, ...],
    target: Any,
    out: Any,
    behind: tuple[Any, ...] = (),
) -> Launch:
    """The launch of a call where some arrays may be Python numbers, or left out.

    A number takes the type of the arrays beside it, as in NumPy: a whole number becomes
    a float beside floats, but a float never meets integers. A `np.float64`, which is a
    Python float, is such a number; NumPy's other scalars are arrays of their type.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    codes = tuple([_CODES.get(type(value), _ARRAY) for value in operands])
    pattern = op.patterns.get(codes)
    if pattern is None:
        own(*operands)
        pattern = op.patterns[codes] = _pattern(op, codes)
    arrays, given = operands, pattern.attributes
    if pattern.arrays is not None:
        arrays = [operands[n] for n in pattern.arrays]
    if pattern.numbers:
        if {*map(type, arrays)} != _PLAIN:
            own(*arrays)
        beside = type_of(op.id, operands[pattern.beside])
        numbers = [
            number_of(
                op.id,
                name,
                op.missing[name](beside[1]) if n is None else operands[n],
                *beside,
            )
            for name, n in pattern.numbers
        ]
        scalars = (*numbers, *scalars)
    if attributes:
        given = given | attributes
    if behind:
        arrays = (*arrays, *behind)
    return call(op, arrays, given, scalars, target, out)


def type_of(id: str, array: Any) -> tuple[str, str]:
    """Kind and name of an array's element type."""
    if type(array) is not np.ndarray:
        from tensorlang.runtime.given_arrays import seen  # noqa: PLC0415 - runtime

        array = seen(array, f"{id}: an operand")
    return _type(array.dtype)


@cache
def _type(dtype: np.dtype[Any]) -> tuple[str, str]:
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - once a type

    found = as_dtype(dtype)
    return found.kind, found.name


@cache
def _beyond(name: str) -> float:
    """The least number that rounds to infinity: half an ulp above the largest."""
    from ml_dtypes import finfo  # noqa: PLC0415 - numbers as large are rare

    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - once a type

    found = finfo(as_dtype(name).numpy)
    largest = float(found.max)
    exponent = math.frexp(largest)[1]
    return largest + math.ldexp(float(found.eps), exponent - 2)


@cache
def _integers(name: str) -> tuple[int, int]:
    """The range of an integer type."""
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - once a type

    found = np.iinfo(as_dtype(name).numpy)
    return int(found.min), int(found.max)


def number_of(id: str, operand: str, value: Any, kind: str, name: str) -> Any:
    """The number as a kernel for arrays of a type takes it.

    Raises:
        DTypeError: the type does not hold such numbers.
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
            f"{id}: {value!r} is no value of the {name} beside it; kinds of "
            "numbers are not mixed: cast the array, or give such a value"
        )
    least, most = _integers(name)
    if not least <= value <= most:
        raise DTypeError(f"{id}: {operand} is {value}; {name} holds {least} to {most}")
    return value


# ------------------------------------------------------------------- single arguments


def number(id: str, name: str, value: Any) -> float:
    """The value as a float.

    Raises:
        ArgumentError: it is no number.
    """
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{id}: {name} is a number, not {value!r:.80}") from None


def _remembered(fit: Callable[[Any], Any]) -> Callable[..., Any]:
    """What makes an attribute of the numbers of a tuple, each of which has a type."""

    @lru_cache(maxsize=1024, typed=True)
    def fitted(*value: Any) -> Any:
        return fit(value)

    return fitted


def _left(id: str, name: str, value: Any) -> tuple[float, ...]:
    """What a share leaves of the whole, as an f32; nothing where it leaves all.

    Raises:
        ArgumentError: it is no share.
    """
    share = number(id, name, value)
    if not 0.0 <= share < 1.0:
        raise ArgumentError(
            f"{id}: 0 <= {name} < 1, not {share}; it is the share that is dropped (of "
            "1 there would be nothing left)"
        )
    return (float(np.float32(1.0 - share)),) if share else ()


def _whole(id: str, name: str, value: Any) -> int:
    if isinstance(value, np.integer):
        return int(value)
    raise ArgumentError(f"{id}: {name} is a whole number, not {value!r:.80}")


def _listed(id: str, name: str, value: Any) -> tuple[Any, ...]:
    if type(value) is list and value:
        return tuple(value)
    raise ArgumentError(
        f"{id}: {name} is a list of arrays, at least one, not {value!r:.80}"
    )


def _shape(id: str, name: str, value: Any) -> tuple[int, ...]:
    given = (value,) if isinstance(value, (int, np.integer)) else value
    whole = isinstance(given, (list, tuple)) and not isinstance(value, bool)
    if not whole or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in given):
        raise ShapeError(
            f"{id}: {name} is a tuple of whole numbers from 0 on, not {value!r:.80}"
        )
    return tuple(map(int, given))


class _Like(NamedTuple):
    shape: tuple[int, ...]


def _like(id: str, name: str, value: Any) -> _Like:
    own(value)
    if not hasattr(value, "shape"):
        raise ArgumentError(f"{id}: {name} is an array, not {value!r:.80}")
    return _Like(tuple(value.shape))


def _likes(id: str, name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    arrays = value if type(value) is tuple and value else _listed(id, name, value)
    return tuple(
        [
            array.shape if type(array) is np.ndarray else _like(id, name, array).shape
            for array in arrays
        ]
    )


def _key(id: str, name: str, value: Any) -> Any:
    own(value)
    raise ArgumentError(
        f"{id}: {name} is a Key, not {type(value).__name__}; make one with "
        "random.key(seed)"
    )
