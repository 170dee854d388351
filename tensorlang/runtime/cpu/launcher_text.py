"""Text of a compiled launcher: `templates/launcher.ll.j2` for a host program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang import templates
from tensorlang.ir.dtypes import DType
from tensorlang.runtime.signature import Signature

if TYPE_CHECKING:
    from tensorlang.runtime.host_program import Data, Number, Statements

Part: TypeAlias = "dict[str, object]"  # of the program, as the template takes it
TOO_LARGE: Final = -1
# maximum grid extents in CUDA; they also fit OpenCL's integers
MOST_BLOCKS: Final = ((1 << 31) - 1, 65535, 65535)

_BINARY: Final = {
    "add": "add i64 {a}, {b}",
    "sub": "sub i64 {a}, {b}",
    "mul": "mul i64 {a}, {b}",
    "floordiv": "call i64 @floordiv(i64 {a}, i64 {b})",
    "floormod": "call i64 @floormod(i64 {a}, i64 {b})",
    "min": "call i64 @llvm.smin.i64(i64 {a}, i64 {b})",
    "max": "call i64 @llvm.smax.i64(i64 {a}, i64 {b})",
    "and": "and i64 {a}, {b}",
    "or": "or i64 {a}, {b}",
    "xor": "xor i64 {a}, {b}",
    "shl": "shl i64 {a}, {b}",
    "shr": "ashr i64 {a}, {b}",
}
# CUtensorMap enum values: data types and swizzles
_MAP_TYPES: Final = {"f16": 6, "f32": 7, "f64": 8, "bf16": 9, "u8": 0, "i32": 3}
_MAP_SWIZZLES: Final = {0: 0, 32: 1, 64: 2, 128: 3}
_L2_PROMOTION: Final = 2  # fetch 128 bytes on a miss
_COMPARE: Final = {
    "eq": "eq",
    "ne": "ne",
    "lt": "slt",
    "le": "sle",
    "gt": "sgt",
    "ge": "sge",
}


def launcher_text(name: str, signature: Signature, host: Data) -> str:
    """The LLVM IR of the launcher."""
    made = _Program(signature, host)
    return templates.render(
        "launcher.ll.j2",
        name=name,
        launches=len(host["launches"]),
        slots=signature.slots,
        too_large=TOO_LARGE,
        most=MOST_BLOCKS,
        l2_promotion=_L2_PROMOTION,
        program=made.program,
        variables=list(made.variables.values()),
        every_launch=made.launches,
    )


def temporaries(host: Data) -> list[str]:
    """The names of the temporaries, in the order of their addresses."""
    args = (arg for launch in host["launches"] for arg in launch["args"])
    return list(dict.fromkeys(arg[1] for arg in args if arg[0] == "temporary"))


class _Program:
    """A host program for the template: a number is instructions and a result name."""

    def __init__(self, signature: Signature, host: Data) -> None:
        self._host = host
        places = range(len(signature.buffers), signature.slots)
        self._slots = dict(zip(host["scalars"], places, strict=True))
        self._count = 0
        self._temporaries = temporaries(host)
        self.launches: list[Part] = []
        self.variables: dict[str, Part] = {}
        for scalar, (name, slot) in zip(
            signature.scalars, self._slots.items(), strict=True
        ):
            self._scalar(name, DType(scalar.dtype), slot)
        self.program = self._all(host["program"])

    def _scalar(self, name: str, dtype: DType, slot: int) -> None:
        if dtype.is_float:
            return
        extend = "sext" if dtype.kind == "int" else "zext"
        size = max(dtype.bits, 8)
        self.variables[name] = {
            "var": f'%"{name}.var"',
            "slot": slot,
            "type": f"i{size}",
            "extend": extend,
        }

    def _variable(self, name: str) -> str:
        new: Part = {"var": f'%"{name}.var"', "slot": None}
        return str(self.variables.setdefault(name, new)["var"])

    def _fresh(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def _all(self, statements: Statements) -> list[Part]:
        return [getattr(self, f"_{kind}")(*rest) for kind, *rest in statements]

    def _let(self, name: str, value: Number) -> Part:
        made = self._number(value)
        return {"kind": "let", "var": self._variable(name), "value": made}

    def _if(self, cond: Number, then: Statements, orelse: Statements) -> Part:
        return {
            "kind": "if",
            "label": self._fresh("if"),
            "cond": self._number(cond),
            "then": self._all(then),
            "orelse": self._all(orelse),
        }

    def _for(self, name: str, extent: Number, body: Statements) -> Part:
        return {
            "kind": "for",
            "label": self._fresh("for"),
            "var": self._variable(name),
            "extent": self._number(extent),
            "body": self._all(body),
        }

    def _launch(self, number: int) -> Part:
        launch = self._host["launches"][number]
        made = {
            "kind": "launch",
            "number": number,
            "grid": [self._number(extent) for extent in launch["grid"]],
            "block": launch["block"],
            "shared": launch.get("dynamic_shared", 0),
            "args": [
                self._argument(f"map{number}.{at}", *arg)
                for at, arg in enumerate(launch["args"])
            ],
            "maps": [
                self._map(f"map{number}.{at}", *arg[1:])
                for at, arg in enumerate(launch["args"])
                if arg[0] == "tensor_map"
            ],
            "temporaries": [
                {"at": self._temporaries.index(arg[1]), "size": self._number(arg[2])}
                for arg in launch["args"]
                if arg[0] == "temporary"
            ],
        }
        self.launches.append(made)
        return made

    def _map(self, id: str, at: int | str, data: Data) -> Part:
        """A tensor map, innermost dimension first: an array, and its copied box.

        The array is a parameter, by position, or a temporary, by name.
        """
        temporary = self._temporaries.index(at) if isinstance(at, str) else None
        return {
            "id": id,
            "temporary": temporary,
            "slot": f"%slot{at}",
            "dtype": _MAP_TYPES[data["dtype"]],
            "itemsize": DType(data["dtype"]).bytes,
            "shape": [self._number(extent) for extent in reversed(data["shape"])],
            "box": data["box"][::-1],
            "swizzle": _MAP_SWIZZLES[data["swizzle"]],
        }

    def _argument(self, id: str, kind: str, *rest: Any) -> Part:
        """Where an argument's value is; `id` names a tensor map."""
        if kind == "tensor_map":
            return {"kind": kind, "place": f"%{id}"}
        if kind == "param":
            return {"kind": kind, "place": f"%slot{rest[0]}"}
        if kind == "faults":
            return {"kind": kind, "place": "%faults"}
        if kind == "temporary":
            return {"kind": kind, "at": self._temporaries.index(rest[0])}
        slot = self._slots.get(rest[0])
        place = self._variable(rest[0]) if slot is None else f"%slot{slot}"
        return {"kind": kind, "place": place}

    def _number(self, value: Number) -> Part:
        """The instructions that compute a number, and the name of the result."""
        steps: list[str] = []
        return {"name": self._steps(value, steps), "steps": steps}

    def _steps(self, value: Number, steps: list[str]) -> str:
        if isinstance(value, int):
            return str(int(value))
        name = self._fresh("%n")
        if isinstance(value, str):
            steps.append(f"{name} = load i64, ptr {self._variable(value)}")
            return name
        op, *given = value
        a, b, *rest = (self._steps(each, steps) for each in given)
        if op == "select":
            steps.append(f"{name}.true = icmp ne i64 {a}, 0")
            steps.append(f"{name} = select i1 {name}.true, i64 {b}, i64 {rest[0]}")
        elif op in _COMPARE:
            steps.append(f"{name}.true = icmp {_COMPARE[op]} i64 {a}, {b}")
            steps.append(f"{name} = zext i1 {name}.true to i64")
        else:
            steps.append(f"{name} = {_BINARY[op].format(a=a, b=b)}")
        return name
