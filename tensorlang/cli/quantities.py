"""Cells of tables: values that print as people read them, and are numbers in JSON."""

from __future__ import annotations

from tensorlang.cli import document
from tensorlang.cli.document import Json


class Seconds(float):
    """A time in a readable unit: 940 ns, 5.21 ms, 1.5 s."""

    def __str__(self) -> str:
        for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
            if self >= size:
                return f"{float(self) / size:.3g} {unit}"
        return f"{float(self) * 1e9:.3g} ns"


class Times(float):
    """A ratio: 1.25x."""

    def __str__(self) -> str:
        return f"{float(self):.2f}x"


class Share(float):
    """A part of a whole: 12.5%."""

    def __str__(self) -> str:
        return f"{float(self):.1%}"


class Bytes(int):
    """A size in the largest unit that it fills: 48 KiB, 1.5 GiB."""

    def __str__(self) -> str:
        for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
            if self >> bits:
                return f"{int(self) / (1 << bits):.4g} {unit}"
        return f"{int(self)} bytes"


class Interval(tuple[float, float]):
    """The ends of an interval of ratios: 0.98 to 1.02."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self[0]:.2f} to {self[1]:.2f}"


class Names(tuple[str, ...]):
    """Names, separated by commas; a dash if there are none."""

    __slots__ = ()

    def __str__(self) -> str:
        return ", ".join(self) or "-"


class Settings(dict[str, object]):
    """Knobs and their values: lanes=16, chunk=64."""

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.items())


class Unlike:
    """A cell whose text is not how its value prints, as `static, about 3 ms`."""

    def __init__(self, text: str, value: object) -> None:
        self._text, self._value = text, value

    def __str__(self) -> str:
        return self._text

    @property
    def value(self) -> object:
        """What JSON has."""
        return self._value


@document.plain.register
def _(value: Unlike) -> Json:
    return document.plain(value.value)
