r"""The kinds of an operator's parameters: its definition's annotations, as data.

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
| `Scalar` | a number, passed to the kernel at each call | a scalar |
| `Share` | a fraction to drop, below 1 | the fraction kept, or None if it is 1 |
| `Key` | a random key, which is consumed | its words and its hash |
| `Key \| None` | one that may be left out | the same, or None |
| `Split` | a random key, which is split and so consumed | the same |
| `Replayed` | a random key whose stream is drawn again | the same |
| `Folded` | a random key, which is marked folded with its `Child` | the same |
| `Child` | the number of a key's child, below 2^64 | a scalar |
| `Offset` | the position of the first element drawn | a counter's words, high and low |
| `Derived` | an input of `derive=` | the scalars derived from it, or None |
| `Shape` | the shape of a result | sizes |
| `Shape \| None` | one that may be left out | sizes, or None |
| `Elements` | the same, if only the number of elements matters | that number |
| `Like` | an array of which only the shape is used | its sizes |
| `ElementType` | an element type, by any of its names | itself |
| `ElementType \| None` | the type that arrays are read in | itself, or None |
| `int`, `float`, `bool`, `str`, `tuple`, `Literal`, None | an attribute | itself |
| `Ints`, `Padding`, `Sizes` | integers: one, or one per dimension | itself |

With `parameters_of=`, `**given` stands for the parameters of another operator, such as
those of the forward operator in the signature of its gradient, that are not named.

Arrays with the same annotation have the same element type. In an elementwise
definition, whose parameters are single elements, the names are `Float`, `Integer`,
`Real`, `Truth` and `Value`; each may also be a Python number. Without an annotation,
positional parameters are arrays of any type, and keyword parameters attributes of their
default's type.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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

from tensorlang import ir
from tensorlang.errors import ArgumentError, DTypeError, OperatorError
from tensorlang.frozen import frozen
from tensorlang.once import cached_property
from tensorlang.ops.spec.promotion import promoted

if TYPE_CHECKING:
    from tensorlang.ops.kernels.tracing import KeyWords, Strips

FLOATS: Final = ("f32", "bf16", "f16", "f64")
INTEGERS: Final = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
NARROW: Final = ("f16", "bf16")
REALS: Final = (*FLOATS, *INTEGERS)
ANY: Final = (*REALS, "bool")
RESERVED: Final = ("out", "target")
# attributes that list the operands that are Python numbers, and those left out
NUMBERS: Final = "numbers"
ABSENT: Final = "absent"
DERIVED: Final = "derived"  # the attribute that describes derived scalars
RAISED: Final = "raised"  # the type that numbers give to arrays of a lower kind
_SHAPES: Final = ("shape", "elements", "like")  # kinds that are only shapes
_PLAIN: Final = (bool, int, float, str, tuple, list, NoneType)
_T = TypeVar("_T")


@frozen
class Arrays:
    """An array, or several."""

    says: str = "array"  # kind of its elements, in words
    # allowed element types; empty for any, independent of other arrays
    dtypes: tuple[str, ...] = ()
    optional: bool = False  # whether it may be left out
    number: bool = False  # whether it may be a Python number
    several: bool = False  # whether it is a list of arrays
    inplace: bool = False  # whether it is updated in place
    packed: bool = False  # whether it may be a packed weight
    batch: bool = False  # whether its first size stays symbolic even if it is 1
    # the attribute that says whether its last two dimensions are exchanged: views that
    # lie so in memory are passed without a copy
    transposed: str = ""
    # its type in a workload that does not say it, unless it has the shape of the array
    # before it; empty: by `dtypes`
    usual: str = ""


@frozen
class Static:
    """A value that the kernel is specialised for."""

    types: tuple[type, ...] = ()  # allowed types
    choices: tuple[object, ...] = ()  # further allowed values
    says: str = "a number or text"  # its description, in words
    pairs: bool = False  # whether its elements may be pairs, which are flattened
    # Its kind in other systems (`interop.calls`); empty: by its types. That of element
    # types is `dtype`.
    kind: str = ""
    # distinguished numbers: any other is rounded down to one of them
    levels: tuple[float, ...] = ()

    def fitted(self, id: str, name: str, value: object) -> Any:
        """The value in the type of the annotation; ArgumentError if not allowed."""
        made: Any = value.item() if isinstance(value, np.generic) else value
        if self.kind == "dtype" and made is not None:
            return ir.as_dtype(made).name
        if isinstance(made, (list, tuple, np.ndarray)) and tuple in self.types:
            made = self._row(made)
        elif type(made) is int and float in self.types and int not in self.types:
            made = float(made)
        if self.levels and type(made) is float:
            below = [level for level in self.levels if level <= made]
            made = max(below) if below else object()
        chosen = any(type(made) is type(each) and made == each for each in self.choices)
        plain = not (self.types or self.choices) and isinstance(made, _PLAIN)
        if chosen or plain or type(made) in self.types:
            return made
        raise ArgumentError(f"{id}: attribute {name} is {self.says}, not {value!r:.80}")

    def _row(self, value: Any) -> object:
        """A flat tuple of integers or None; an invalid value for anything else."""
        given = value.tolist() if isinstance(value, np.ndarray) else value
        if self.pairs and any(isinstance(each, (list, tuple)) for each in given):
            pairs = [p if isinstance(p, (list, tuple)) else (p, p) for p in given]
            given = [n for p in pairs for n in (p if len(p) == 2 else "?")]
        made = tuple(n.item() if isinstance(n, np.generic) else n for n in given)
        plain = all(n is None or type(n) is int for n in made)
        return made if plain else object()


@frozen
class Other:
    """A parameter of another kind, such as `scalar` or `key`."""

    kind: str  # name of the kind
    several: bool = False  # whether it is a list of these
    optional: bool = False  # whether it may be left out
    # how a call uses a key, for errors; empty if it does not consume it
    verb: str = "drawn from"
    # converts all but plain numbers, if a call gives a number of elements
    counted: Callable[[str, str, Any], Any] | None = None


@frozen
class Domain:
    """A number that `host` takes; see `Operator`."""

    type: type  # type of values that are accepted unchanged,
    test: str  # if this condition on `{}` holds
    # converts or refuses all others: a function of id, name and value
    fitted: Callable[[str, str, Any], Any]
    optional: bool = False  # whether it may be left out


Kind: TypeAlias = Arrays | Static | Other | Domain
_KINDS: Final = (Arrays, Static, Other, Domain)


@frozen
class Parameter:
    """A parameter: its name, kind and default, and whether it is keyword-only."""

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
        """Whether it is an optional key, whose words follow all other arguments."""
        return self.is_a("key") and self.is_optional

    @property
    def is_optional(self) -> bool:
        """Whether it is an array, a key or a shape that may be left out."""
        return isinstance(self.kind, (Arrays, Other)) and self.kind.optional

    @property
    def verb(self) -> str:
        """How a call uses up this key; empty for all else."""
        kind = self.kind
        return kind.verb if isinstance(kind, Other) and kind.kind == "key" else ""

    def is_a(self, kind: str) -> bool:
        """Whether it is of the named kind of `Other`."""
        return isinstance(self.kind, Other) and self.kind.kind == kind

    @property
    def several(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.kind, (Arrays, Other)) and self.kind.several

    @property
    def is_shape(self) -> bool:
        """Whether only its shape is used."""
        return isinstance(self.kind, Other) and self.kind.kind in _SHAPES


@dataclass(frozen=True)
class Spec:
    """All parameters of an operator, and their form in a workload.

    A workload has a shape for each array, then one for each parameter that is only a
    shape, and attributes: all else that its kernel depends on. If it `promotes`, arrays
    of different types are read in their common one (`tensorlang.ops.spec.promotion`).
    """

    id: str
    parameters: tuple[Parameter, ...]
    promotes: bool = False

    @cached_property
    def arrays(self) -> dict[str, Arrays]:
        """The parameters that are arrays, by name."""
        found = ((p.name, p.kind) for p in self.parameters)
        return {name: kind for name, kind in found if isinstance(kind, Arrays)}

    @cached_property
    def shapes(self) -> tuple[str, ...]:
        """The names of the parameters that are shapes."""
        return tuple(p.name for p in self.parameters if p.is_shape)

    def listed(self, attributes: Mapping[str, object]) -> list[str]:
        """The name of each shape of a call, other than those of arrays."""
        absent = str(attributes.get(ABSENT, "")).split()
        found = (p for p in self.parameters if p.is_shape and p.name not in absent)
        return [p.name for p in found for _ in range(_times(p, attributes))]

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes that a caller passes."""
        rest = (
            p for p in self.parameters if p.name not in (*self.arrays, *self.shapes)
        )
        gone = ("scalar", "offset", "child", "derived")
        return tuple(p.name for p in rest if not any(map(p.is_a, gone)))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The names of the required keys."""
        return tuple(
            p.name for p in self.parameters if p.is_a("key") and not p.is_extra
        )

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The names of the parameters that are element types."""
        return tuple(p.name for p in self.parameters if p.is_a("dtype"))

    @cached_property
    def elements(self) -> str:
        """The name of the `Elements` parameter, or an empty string."""
        found = (p.name for p in self.parameters if p.is_a("elements"))
        return next(found, "")

    @cached_property
    def typed(self) -> str:
        """The name of the parameter for the type that arrays are read in, or none."""
        kinds = ((p.name, p.kind) for p in self.parameters)
        found = (n for n, k in kinds if isinstance(k, Static) and k.kind == "dtype")
        return next(found, "")

    def flat(self, shapes: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
        """The shapes other than those of arrays, as the definition takes them."""
        return [
            (math.prod(shape),) if name == self.elements else tuple(shape)
            for name, shape in zip(self.listed(attributes), shapes, strict=False)
        ]

    def slots(self, attributes: Mapping[str, object]) -> list[str]:
        """The name of each array of a call; a list's name once per array."""
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
        """The parameters in the order of the kernel's arguments.

        Words of optional keys and derived scalars come last.
        """
        return sorted(self.parameters, key=lambda p: p.is_extra or p.is_a("derived"))

    def fitted(self, given: Mapping[str, Any], count: int) -> dict[str, Any]:
        """All attributes of a call with `count` shapes, with defaults filled in.

        Raises:
            ArgumentError: an attribute is unknown, missing, or of a wrong type.
        """
        special = (NUMBERS, ABSENT, DERIVED, RAISED)
        unknown = given.keys() - {p.name for p in self.parameters} - {*special}
        if unknown:
            raise ArgumentError(
                f"{self.id} has no attribute {min(unknown)!r}; it has "
                f"{', '.join(self.attributes) or 'none'}"
            )
        made = {name: given[name] for name in special if given.get(name)}
        for p in self.parameters:
            value = given.get(p.name, p.default)
            attribute = isinstance(p.kind, Static) or p.is_a("dtype")
            if attribute and value is inspect.Parameter.empty:
                raise ArgumentError(f"{self.id}: {p.name} is needed")
            if isinstance(p.kind, Static):
                made[p.name] = p.kind.fitted(self.id, p.name, value)
            elif p.several:
                others = len(self.arrays) + len(self.shapes) - 1
                made[p.name] = given.get(p.name, count - others)
            elif isinstance(p.kind, Arrays) and p.kind.packed:
                made[p.name] = PACKING.fitted(self.id, p.name, given.get(p.name, 0))
            elif p.is_a("key"):
                usual = None if p.is_extra else "threefry2x32"
                made[p.name] = given.get(p.name, usual)
            elif p.is_a("share"):
                made[p.name] = bool(given.get(p.name, False))
            elif p.is_a("dtype"):
                made[p.name] = ir.as_dtype(value).name
        optional = [p.name for p in self.parameters if p.is_optional and not p.is_extra]
        missing = len(self.slots(made)) + len(self.listed(made)) - count
        if optional and missing > 0 and ABSENT not in made:
            made[ABSENT] = " ".join(optional[-missing:])
        return made

    def read_as(
        self, dtypes: Sequence[str], attributes: Mapping[str, object]
    ) -> tuple[str, ...]:
        """The type in which the definition reads each array.

        Raises:
            DTypeError: a type is not allowed, or differs between arrays with the same
                annotation.
            ArgumentError: there are too many or too few arrays.
        """
        names = self.slots(attributes)
        shapes = self.listed(attributes)
        if len(dtypes) != len(names) + len(shapes):
            listed = ", ".join((*names, *shapes))
            raise ArgumentError(
                f"{self.id} takes {len(names)} array{'s' * (len(names) != 1)} "
                f"({listed}), not {len(dtypes)}"
            )
        if self.promotes:
            dtypes = self.promoted(names, dtypes, str(attributes.get(RAISED, "")))
        if wanted := attributes.get(self.typed):
            dtypes = [*[str(wanted)] * len(names), *dtypes[len(names) :]]
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
        return tuple(dtypes)

    def promoted(
        self, names: Sequence[str], dtypes: Sequence[str], raised: str = ""
    ) -> list[str]:
        """The types in which arrays are read: one for those of the same annotation.

        Arrays without a common type keep their own. `raised` is the type that numbers
        give to arrays of a lower kind.
        """
        made = [*dtypes]
        numbered = {kind.dtypes for kind in self.arrays.values() if kind.number}
        groups: dict[tuple[str, ...], list[int]] = {}
        for n, name in enumerate(names):
            kind = self.arrays.get(name, Arrays())
            if kind.dtypes and not kind.inplace:
                groups.setdefault(kind.dtypes, []).append(n)
        for allowed, places in groups.items():
            types = tuple(dtypes[n] for n in places)
            common = promoted(types, allowed, raised if allowed in numbered else "")
            for n in places:
                made[n] = common or made[n]
        return made

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


def derived_scalars(variant: str) -> dict[str, list[tuple[str, str]]]:
    """The name and type of each derived scalar, by parameter.

    Args:
        variant: Their description, such as `rate:u32,f32`; parameters without derived
            scalars are left out.
    """
    found = {}
    for part in variant.split():
        name, _, kinds = part.partition(":")
        listed = kinds.split(",")
        numbers = range(len(listed)) if len(listed) > 1 else ("",)
        found[name] = [(f"{name}{n}", k) for n, k in zip(numbers, listed, strict=True)]
    return found


def _times(parameter: Parameter, attributes: Mapping[str, Any]) -> int:
    """The number of arrays or shapes of a parameter in a call."""
    return int(attributes[parameter.name]) if parameter.several else 1


# each for type checkers, with the kind that it is here
Floats: TypeAlias = Annotated["ir.Tensor", Arrays("floats", FLOATS)]
Singles: TypeAlias = Annotated["ir.Tensor", Arrays("floats", ("f32",))]
Weights: TypeAlias = Annotated["ir.Tensor", Arrays("weights", FLOATS)]
Integers: TypeAlias = Annotated["ir.Tensor", Arrays("integers", INTEGERS)]
Indices: TypeAlias = Annotated["ir.Tensor", Arrays("indices", ("i32", "i64"))]
Numbers: TypeAlias = Annotated["ir.Tensor", Arrays("numbers", REALS)]
Truths: TypeAlias = Annotated["ir.Tensor", Arrays("truth values", ("bool",))]
Anything: TypeAlias = Annotated["ir.Tensor", Arrays("numbers or truth values", ANY)]
Float: TypeAlias = Annotated["ir.Expr", Arrays("floats", FLOATS)]
Integer: TypeAlias = Annotated["ir.Expr", Arrays("integers", INTEGERS)]
Real: TypeAlias = Annotated["ir.Expr", Arrays("numbers", REALS)]
Truth: TypeAlias = Annotated["ir.Expr", Arrays("truth values", ("bool",))]
Value: TypeAlias = Annotated["ir.Expr", Arrays("numbers or truth values", ANY)]
Number: TypeAlias = Annotated["ir.Expr", ("number", True)]
Packed: TypeAlias = Annotated["Strips", ("packed", True)]
InOut: TypeAlias = Annotated[_T, ("inplace", True)]
Batch: TypeAlias = Annotated[_T, ("batch", True)]
Ints: TypeAlias = Annotated[
    "int | tuple[int, ...]", Static((int, tuple), says="a whole number or several")
]
Sizes: TypeAlias = Annotated[
    "int | tuple[int, ...]",
    Static((int, tuple), says="a whole number or several", kind="sizes"),
]
Padding: TypeAlias = Annotated[
    "int | tuple[int, ...] | tuple[tuple[int, int], ...] | str",
    Static(
        (int, tuple, str), says="whole numbers, pairs, 'same' or 'valid'", pairs=True
    ),
]
Scalar: TypeAlias = Annotated["ir.ExprLike", Other("scalar")]
Share: TypeAlias = Annotated["ir.Expr | float | None", Other("share")]
Key: TypeAlias = Annotated["KeyWords", Other("key")]
Replayed: TypeAlias = Annotated["KeyWords", Other("key", verb="")]
Split: TypeAlias = Annotated["KeyWords", Other("key", verb="split")]
Folded: TypeAlias = Annotated["KeyWords", Other("key", verb="folded")]
Child: TypeAlias = Annotated["ir.Expr", Other("child")]
Offset: TypeAlias = Annotated[Any, Other("offset")]
Derived: TypeAlias = Annotated[Any, Other("derived")]
ElementType: TypeAlias = Annotated[Any, Other("dtype")]
Shape: TypeAlias = Annotated["tuple[ir.Size, ...]", Other("shape")]
Elements: TypeAlias = Annotated["tuple[ir.Size, ...]", Other("elements")]
Like: TypeAlias = Annotated["tuple[ir.Size, ...]", Other("like")]


PACKING: Final = Static(
    (tuple,), (0,), "the columns and the spare inputs of a packed weight, or 0"
)
FLAG: Final = Static((bool,), (), "True or False")
_NAMES: Final = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    tuple: "a tuple",
}


def spec(
    id: str, definition: Callable[..., object], rest: Sequence[Parameter] = ()
) -> Spec:
    """The spec for the signature of a definition.

    Args:
        id: The operator's id.
        rest: What `**` in the signature stands for, without what it names itself.

    Raises:
        OperatorError: a parameter has a reserved name or an unknown annotation.
    """
    found: list[Parameter] = []
    for name, given in inspect.signature(definition).parameters.items():
        if rest and given.kind is given.VAR_KEYWORD:
            own = {p.name for p in found}
            found += [p for p in rest if p.name not in own]
            continue
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


def evaluated(annotation: object, definition: Callable[..., object]) -> object:
    """An annotation as an object; empty if its names exist only for type checkers.

    Types of the IR, such as `ir.Tensor`, are not loaded for it: they say no kind.
    """
    if not isinstance(annotation, str):
        return annotation
    if annotation.startswith("ir."):
        return inspect.Parameter.empty
    known = getattr(inspect.unwrap(definition), "__globals__", {})
    try:
        return eval(annotation, known)  # noqa: S307 - as `typing.get_type_hints` does
    except NameError:
        return inspect.Parameter.empty


def _unsaid(default: object, keyword: bool) -> Kind:
    if not keyword:
        return Arrays(optional=default is None)
    if default is None or default is inspect.Parameter.empty:
        return Static()
    kind = type(default)
    return Static((kind,), says=_NAMES.get(kind, kind.__name__))


def annotated(said: object) -> object:
    """The kind of an annotation that is one of those here; any other one unchanged."""
    if get_origin(said) is not Annotated:
        return said
    kind, *marks = said.__metadata__  # type: ignore[attr-defined]
    return replace(kind, **dict(marks)) if isinstance(kind, _KINDS) else said


def kind_of(where: str, said: object) -> Kind:
    """The kind of an annotation; OperatorError if the annotation is unknown."""
    found = annotated(said)
    if isinstance(found, _KINDS):
        return found
    origin, of = get_origin(said), get_args(said)
    if origin is Sequence and len(of) == 1:
        one = annotated(of[0])
        if isinstance(one, (Arrays, Other)):
            return replace(one, several=True)
    if origin is Literal:
        *others, last = map(repr, of)
        return Static((), of, f"{', '.join(others)} or {last}" if others else last)
    if said is None or said is NoneType:
        return Static((), (None,), "None")
    united = _united(where, of) if origin in (Union, UnionType) else None
    if united is not None:
        return united
    plain = origin or said
    if plain in _NAMES:
        return Static((plain,), (), _NAMES[plain])
    if getattr(plain, "__name__", "") == "DType":
        return Other("dtype")
    raise OperatorError(
        f"{where}: no parameter of an operator is a {said!r}; arrays are Floats, "
        "Integers and so on, attributes int, float, bool, str or tuple (see "
        "tensorlang.ops.spec.signature), or leave the annotation out"
    )


def _united(where: str, parts: Sequence[object]) -> Kind | None:
    """The kind of alternatives; None if they have none."""
    found = [annotated(part) for part in parts]
    first = next((each for each in found if isinstance(each, _KINDS)), None)
    if first is None:
        plain = [kind_of(where, part) for part in parts]
        statics = [each for each in plain if isinstance(each, Static)]
        if len(statics) < len(plain):
            return None
        return Static(
            tuple(type_ for each in statics for type_ in each.types),
            tuple(value for each in statics for value in each.choices),
            " or ".join(each.says for each in statics),
        )
    kind: Kind = first
    for other in found:
        marks = getattr(other, "__metadata__", ())
        if isinstance(kind, Arrays) and marks:
            kind = replace(kind, **dict(marks))
        elif isinstance(kind, Static) and other is NoneType:
            choices = (*kind.choices, None)
            kind = replace(kind, choices=choices, says=f"{kind.says}, or None")
        elif isinstance(kind, Other) and kind.kind == "dtype" and other is NoneType:
            kind = Static((), (None, *ANY), "an element type, or None", kind="dtype")
        elif isinstance(kind, Other) and kind.kind not in ("key", "shape", "dtype"):
            return None
        elif not isinstance(kind, Static) and other is NoneType:
            kind = replace(kind, optional=True)
        elif other is not first:
            return None
    return kind
