r"""What the parameters of an operator take: its definition's annotations, as data.

    def norm(x: Floats, weight: Floats | None = None, eps: Scalar = 1e-5): ...

| annotation | the caller gives | the body gets |
|---|---|---|
| `Floats`, `Integers`, `Numbers`, `Truths`, `Anything` | an array of these | a tensor |
| `Indices` | an array of i64 or i32 | a tensor |
| `Singles` | an array of f32 | a tensor |
| `Weights` | floats, which may be f32 beside f16 and bf16 | a tensor |
| `Floats \| None` | one that may be left out | a tensor, or None |
| `Floats \| Number` | an array or a Python number | a tensor, or a scalar |
| `Floats \| Packed` | an array, or a packed weight | a tensor, or its strips |
| `Sequence[Floats]` | a list of arrays | a list of tensors |
| `Batch[Floats]` | an array of a batch, of one or many | a tensor |
| `InOut[Floats]` | an array to be updated in place | a tensor |
| `Scalar` | a number that each call tells the kernel | a scalar |
| `Share` | a share that is left out, below 1 | what is left, or None where all is |
| `Key` | a random key, which is used up | its words and its hash |
| `Key \| None` | one that may be left out | the same, or None |
| `Shape` | the shape of a result | sizes |
| `Like` | an array of which only the shape counts | its sizes |
| `DType` | an element type | itself |
| `int`, `float`, `bool`, `str`, `tuple`, `Literal`, None | an attribute | itself |
| `Ints`, `Padding`, `Sizes` | whole numbers: one, or one a dimension | itself |

Arrays of one annotation have one element type. In an elementwise definition, where a
parameter is one element, the names are `Float`, `Integer`, `Real`, `Truth` and `Value`;
each may be a Python number there. Without an annotation, positional parameters are
arrays of any type, keyword parameters attributes of their default's type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, OperatorError

FLOATS: Final = ("f32", "bf16", "f16", "f64")
INTEGERS: Final = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
NARROW: Final = ("f16", "bf16")
REALS: Final = (*FLOATS, *INTEGERS)
ANY: Final = (*REALS, "bool")
RESERVED: Final = ("out", "target")
# attributes that say which arrays are Python numbers, and which are left out
NUMBERS: Final = "numbers"
ABSENT: Final = "absent"
_PLAIN: Final = (bool, int, float, str, tuple, list, NoneType)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Arrays:
    """An array, or several.

    Attributes:
        says: What its elements are, in words.
        dtypes: The element types that it may have; empty for any, of its own.
        optional: Whether it may be left out.
        number: Whether it may be a Python number.
        several: Whether it is a list of arrays.
        inplace: Whether it is updated.
        packed: Whether it may be a packed weight.
        batch: Whether its first size stays open where it is 1, too.
    """

    says: str = "array"
    dtypes: tuple[str, ...] = ()
    optional: bool = False
    number: bool = False
    several: bool = False
    inplace: bool = False
    packed: bool = False
    batch: bool = False

    def __or__(self, other: Any) -> Arrays:
        if other is None:
            return replace(self, optional=True)
        if other is Number:
            return replace(self, number=True)
        if other is Packed:
            return replace(self, packed=True)
        return NotImplemented

    __ror__ = __or__


@dataclass(frozen=True, slots=True)
class Static:
    """A value that is part of the kernel.

    Attributes:
        types: The types that it may have.
        choices: Values that it may have besides.
        says: What it is, in words.
        pairs: Whether what it holds may be pairs, which become one row of numbers.
        kind: What other systems call it (`interop.calls.KINDS`); empty: by its types.
    """

    types: tuple[type, ...] = ()
    choices: tuple[Any, ...] = ()
    says: str = "a number or text"
    pairs: bool = False
    kind: str = ""

    def __or__(self, other: Any) -> Static:
        if other is not None:
            return NotImplemented
        return replace(
            self, choices=(*self.choices, None), says=f"{self.says}, or None"
        )

    def fitted(self, id: str, name: str, value: Any) -> Any:
        """The value, as the type that the definition asks for.

        Raises:
            ArgumentError: it is none of those.
        """
        made = value.item() if isinstance(value, np.generic) else value
        if isinstance(made, (list, tuple, np.ndarray)) and tuple in self.types:
            made = self._row(made)
        elif type(made) is int and float in self.types and int not in self.types:
            made = float(made)
        chosen = any(type(made) is type(each) and made == each for each in self.choices)
        plain = not (self.types or self.choices) and isinstance(made, _PLAIN)
        if chosen or plain or type(made) in self.types:
            return made
        raise ArgumentError(f"{id}: attribute {name} is {self.says}, not {value!r:.80}")

    def _row(self, value: Any) -> Any:
        """Whole numbers, or None in their place, in a row; no attribute if others."""
        given = value.tolist() if isinstance(value, np.ndarray) else value
        if self.pairs and any(isinstance(each, (list, tuple)) for each in given):
            pairs = [p if isinstance(p, (list, tuple)) else (p, p) for p in given]
            given = [n for p in pairs for n in (p if len(p) == 2 else "?")]
        made = tuple(n.item() if isinstance(n, np.generic) else n for n in given)
        plain = all(n is None or type(n) is int for n in made)
        return made if plain else object()


@dataclass(frozen=True, slots=True)
class Other:
    """A parameter of a kind of its own, such as `scalar` or `key`.

    Attributes:
        kind: Which.
        several: Whether it is a list of these.
        optional: Whether it may be left out.
    """

    kind: str
    several: bool = False
    optional: bool = False

    def __or__(self, other: Any) -> Other:
        known = self.kind == "key" and other is None
        return replace(self, optional=True) if known else NotImplemented


Kind: TypeAlias = Arrays | Static | Other


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its name, kind and default, and whether only its name will do."""

    name: str
    kind: Kind
    default: Any
    keyword: bool

    @property
    def needed(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def is_extra(self) -> bool:
        """Whether it is a key that may be left out: its words stand behind all else."""
        return isinstance(self.kind, Other) and self.kind.optional

    def is_a(self, kind: str) -> bool:
        """Whether it is of one of the kinds that have a name."""
        return isinstance(self.kind, Other) and self.kind.kind == kind

    @property
    def several(self) -> bool:
        """Whether it is a list."""
        return not isinstance(self.kind, Static) and self.kind.several

    @property
    def is_shape(self) -> bool:
        """Whether nothing of it but a shape counts."""
        return self.is_a("shape") or self.is_a("like")


@dataclass(frozen=True)
class Spec:
    """All parameters of an operator, and what a call with them is.

    A call has a shape for each array, then one for each parameter that is none but
    that; and
    attributes: all else that its kernel depends on.
    """

    id: str
    parameters: tuple[Parameter, ...]

    @cached_property
    def arrays(self) -> dict[str, Arrays]:
        """The parameters that are arrays, by name."""
        found = ((p.name, p.kind) for p in self.parameters)
        return {name: kind for name, kind in found if isinstance(kind, Arrays)}

    @cached_property
    def shapes(self) -> tuple[str, ...]:
        """The names of the parameters that are shapes."""
        return tuple(p.name for p in self.parameters if p.is_shape)

    def listed(self, attributes: Mapping[str, Any]) -> list[str]:
        """The name of each shape of a call beside those of arrays."""
        found = (p for p in self.parameters if p.is_shape)
        return [p.name for p in found for _ in range(_times(p, attributes))]

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes that a caller gives."""
        rest = (
            p for p in self.parameters if p.name not in (*self.arrays, *self.shapes)
        )
        return tuple(p.name for p in rest if not p.is_a("scalar"))

    def slots(self, attributes: Mapping[str, Any]) -> list[str]:
        """The name of each array of a call, of a list as often as it has arrays."""
        gone = (str(attributes.get(name, "")).split() for name in (NUMBERS, ABSENT))
        left = self.arrays.keys() - {name for names in gone for name in names}
        keys = {p.name for p in self.parameters if p.is_a("key")}
        keys -= {name for name in keys if attributes.get(name, "") is None}
        return [
            p.name
            for p in self.ordered
            if p.name in left | keys
            for _ in range(_times(p, attributes))
        ]

    @cached_property
    def ordered(self) -> list[Parameter]:
        """The parameters, keys that may be left out last, as their words are given."""
        return sorted(self.parameters, key=lambda p: p.is_extra)

    def fitted(self, given: Mapping[str, Any], count: int) -> dict[str, Any]:
        """All attributes of a call with so many shapes, from some of them.

        Raises:
            ArgumentError: there is no such attribute, one is missing, or of no kind
                that it can be.
        """
        unknown = given.keys() - {p.name for p in self.parameters} - {NUMBERS, ABSENT}
        if unknown:
            raise ArgumentError(
                f"{self.id} has no attribute {min(unknown)!r}; it has "
                f"{', '.join(self.attributes) or 'none'}"
            )
        made = {name: given[name] for name in (NUMBERS, ABSENT) if given.get(name)}
        for p in self.parameters:
            value = given.get(p.name, p.default)
            if isinstance(p.kind, Static):
                if value is inspect.Parameter.empty:
                    raise ArgumentError(f"{self.id}: {p.name} is needed")
                made[p.name] = p.kind.fitted(self.id, p.name, value)
            elif p.several:
                others = len(self.arrays) + len(self.shapes) - 1
                made[p.name] = given.get(p.name, count - others)
            elif isinstance(p.kind, Arrays) and p.kind.packed:
                made[p.name] = given.get(p.name, 0)
            elif p.is_a("key"):
                usual = None if p.is_extra else "threefry2x32"
                made[p.name] = given.get(p.name, usual)
            elif p.is_a("share"):
                made[p.name] = bool(given.get(p.name, False))
            elif p.is_a("dtype"):
                made[p.name] = value
        optional = [name for name, kind in self.arrays.items() if kind.optional]
        missing = len(self.slots(made)) + len(self.listed(made)) - count
        if optional and missing > 0 and ABSENT not in made:
            made[ABSENT] = " ".join(optional[-missing:])
        return made

    def check(self, dtypes: Sequence[str], attributes: Mapping[str, Any]) -> None:
        """Refuse arrays of other types than the annotations say, or too few of them.

        Raises:
            DTypeError: a type is none of those, or arrays of one annotation differ.
            ArgumentError: there are more arrays or fewer.
        """
        names = self.slots(attributes)
        shapes = self.listed(attributes)
        if len(dtypes) != len(names) + len(shapes):
            listed = ", ".join((*names, *shapes))
            raise ArgumentError(
                f"{self.id} takes {len(names)} arrays ({listed}), not {len(dtypes)}"
            )
        alike: dict[str, dict[Any, str]] = {}
        for n, (name, dtype) in enumerate(zip(names, dtypes, strict=False)):
            kind = self.arrays.get(name, Arrays())
            if kind.dtypes and dtype not in kind.dtypes:
                listed = ", ".join(kind.dtypes)
                several = len({each.dtypes for each in self.arrays.values()}) > 1
                said = f"{self.id}: {name}" if several else self.id
                raise DTypeError(
                    f"{said} takes {listed}, not {dtype}; cast it first"
                    if len(kind.dtypes) > 1
                    else f"{self.id}: {name} is an array of {listed}, not of {dtype}"
                )
            if kind.dtypes and not kind.inplace:
                alike.setdefault(kind.says, {})[name, n] = dtype
        weights, floats = alike.pop("weights", {}), alike.get("floats", {})
        for kinds in alike.values():
            if len(set(kinds.values())) > 1:
                raise DTypeError(
                    f"{self.id}: its arrays have one element type, not "
                    f"{', '.join(kinds.values())}; cast them to one"
                )
        self._check_weights(weights, floats)

    def _check_weights(self, weights: dict[Any, str], floats: dict[Any, str]) -> None:
        kinds, beside = {*weights.values()}, {*floats.values()}
        if kinds <= beside or (kinds == {"f32"} and beside <= {*NARROW}):
            return
        shown = ", ".join(f"{n} {kind}" for (n, _), kind in (floats | weights).items())
        narrow = " and ".join(n for n, _ in weights)
        raise DTypeError(
            f"{self.id}: all arrays have one type, or {narrow} are f32 beside f16 or "
            f"bf16; got {shown}"
        )


def _times(parameter: Parameter, attributes: Mapping[str, Any]) -> int:
    """How many arrays or shapes of a call are of a parameter."""
    return int(attributes[parameter.name]) if parameter.several else 1


if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr, ExprLike
    from tensorlang.ir.sizes import Size
    from tensorlang.ops.tracing import KeyWords, Strips

    Floats: TypeAlias = Tensor
    Singles: TypeAlias = Tensor
    Weights: TypeAlias = Tensor
    Integers: TypeAlias = Tensor
    Indices: TypeAlias = Tensor
    Numbers: TypeAlias = Tensor
    Truths: TypeAlias = Tensor
    Anything: TypeAlias = Tensor
    Float: TypeAlias = Expr
    Integer: TypeAlias = Expr
    Real: TypeAlias = Expr
    Truth: TypeAlias = Expr
    Value: TypeAlias = Expr
    Number: TypeAlias = Expr
    Packed: TypeAlias = Strips
    Ints: TypeAlias = int | tuple[int, ...]
    Sizes: TypeAlias = int | tuple[int, ...]
    Padding: TypeAlias = int | tuple[int, ...] | tuple[tuple[int, int], ...] | str
    Scalar: TypeAlias = ExprLike
    Share: TypeAlias = Expr | float | None
    InOut = Annotated[_T, "in place"]
    Batch = Annotated[_T, "a batch"]
    Key: TypeAlias = KeyWords
    Shape: TypeAlias = tuple[Size, ...]
    Like: TypeAlias = tuple[Size, ...]
else:
    Floats = Float = Arrays("floats", FLOATS)
    Singles = Arrays("floats", ("f32",))
    Weights = Arrays("weights", FLOATS)
    Integers = Integer = Arrays("integers", INTEGERS)
    Indices = Arrays("indices", ("i32", "i64"))
    Numbers = Real = Arrays("numbers", REALS)
    Truths = Truth = Arrays("truth values", ("bool",))
    Anything = Value = Arrays("numbers or truth values", ANY)
    Number, Packed = object(), object()
    Ints = Static((int, tuple), (), "a whole number or several")
    Sizes = replace(Ints, kind="sizes")
    Padding = Static(
        (int, tuple, str), (), "whole numbers, pairs, 'same' or 'valid'", pairs=True
    )
    Scalar, Share, Key = Other("scalar"), Other("share"), Other("key")
    Shape, Like = Other("shape"), Other("like")

    class InOut:
        """An array that is updated in place."""

        def __class_getitem__(cls, of: Arrays) -> Arrays:
            """Such an array of the elements of `of`."""
            return replace(of, inplace=True)

    class Batch:
        """An array of any number of rows: one of them is a batch as any other."""

        def __class_getitem__(cls, of: Arrays) -> Arrays:
            """Such an array of the elements of `of`."""
            return replace(of, batch=True)


FLAG: Final = Static((bool,), (), "True or False")
_NAMES: Final = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    tuple: "a tuple",
}


def spec(id: str, definition: Callable[..., Any]) -> Spec:
    """The spec that the signature of a definition is.

    Raises:
        OperatorError: one has a name or an annotation that no parameter can have.
    """
    found = []
    for name, given in inspect.signature(definition).parameters.items():
        if name in RESERVED:
            raise OperatorError(f"{id}: {name!r} is a name every operator has already")
        if given.kind not in (given.KEYWORD_ONLY, given.POSITIONAL_OR_KEYWORD):
            raise OperatorError(f"{id}: a definition names its arrays: no *{name}")
        keyword = given.kind is given.KEYWORD_ONLY
        said = evaluated(given.annotation, definition)
        unsaid = said is given.empty or said is Any
        if unsaid or getattr(said, "__name__", "") == "Tensor":
            kind = _unsaid(given.default, keyword)
        else:
            kind = kind_of(f"{id}: {name}", said)
        found.append(Parameter(name, kind, given.default, keyword))
    return Spec(id, tuple(found))


def evaluated(annotation: Any, definition: Callable[..., Any]) -> Any:
    """An annotation as an object; empty where its names are for type checkers alone."""
    if not isinstance(annotation, str):
        return annotation
    known = getattr(inspect.unwrap(definition), "__globals__", {})
    try:
        return eval(annotation, known)  # noqa: S307 - as `typing.get_type_hints` does
    except NameError:
        return inspect.Parameter.empty


def _unsaid(default: Any, keyword: bool) -> Kind:
    if not keyword:
        return Arrays(optional=default is None)
    if default is None or default is inspect.Parameter.empty:
        return Static()
    kind = type(default)
    return Static((kind,), says=_NAMES.get(kind, kind.__name__))


def kind_of(where: str, said: Any) -> Kind:
    """The kind of an annotation.

    Raises:
        OperatorError: there is none.
    """
    if isinstance(said, (Arrays, Other, Static)):
        return said
    origin, of = get_origin(said), get_args(said)
    if origin is Sequence and len(of) == 1 and isinstance(of[0], (Arrays, Other)):
        return replace(of[0], several=True)
    if origin is Literal:
        *others, last = map(repr, of)
        return Static((), of, f"{', '.join(others)} or {last}" if others else last)
    if said is None or said is NoneType:
        return Static((), (None,), "None")
    if origin in (Union, UnionType):
        found = [kind_of(where, part) for part in of]
        parts = [part for part in found if isinstance(part, Static)]
        if len(parts) == len(of):
            return Static(
                tuple(kind for part in parts for kind in part.types),
                tuple(value for part in parts for value in part.choices),
                " or ".join(part.says for part in parts),
            )
    plain = origin or said
    if plain in _NAMES:
        return Static((plain,), (), _NAMES[plain])
    if getattr(plain, "__name__", "") == "DType":
        return Other("dtype")
    raise OperatorError(
        f"{where}: no parameter of an operator is a {said!r}; arrays are Floats, "
        "Integers and so on, attributes int, float, bool, str or tuple (see "
        "tensorlang.ops.signature), or leave the annotation out"
    )
