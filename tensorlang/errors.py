"""Every error that tensorlang raises on purpose, under one root.

A message says what was wrong, with which values, and what to do about it.
"""


class TensorlangError(Exception):
    """The root: catch this to catch everything tensorlang raises on purpose."""


class IRError(TensorlangError, ValueError):
    """A tree that is not well formed: raised by constructors and the verifier."""


class DTypeError(IRError, TypeError):
    """Element types that do not fit: names both sides."""


class ParseError(IRError):
    """IR text that does not parse: carries line and column in its message."""


class InterpreterError(TensorlangError):
    """A fault of the executed program: bounds, race, unwritten read, barrier."""


class ScheduleError(TensorlangError, ValueError):
    """A schedule step that is not legal: which rule, which loop, what would help."""


class CodegenError(TensorlangError):
    """IR that a target cannot express, or a compiler that refused the source."""


class TargetError(TensorlangError, ValueError):
    """An unknown target, or one that is not present on this machine."""


class ShapeError(TensorlangError, ValueError):
    """Shapes that do not fit an operator: names the operator and both shapes."""


class ArgumentError(TensorlangError, ValueError):
    """An argument outside its domain: a negative rate, an overlapping out."""


class KernelError(TensorlangError, RuntimeError):
    """A kernel that reported a fault while running, such as an index out of range.

    `code` is what the kernel's checks reported, of several threads or-ed.
    """

    code: int = 0


class DeviceError(TensorlangError, RuntimeError):
    """A device's driver that refused or failed: what it was doing, in its own words.

    `lost` says that nothing can be computed there any more by this process.
    """

    lost: bool = False


class DeviceMemoryError(DeviceError, MemoryError):
    """A device that has no memory left: how much was asked for."""


class KeyReuseError(TensorlangError, RuntimeError):
    """A random key consumed twice: names both uses by file and line."""


class GraphError(TensorlangError, ValueError):
    """A program of operators that cannot be: names the function, layer or line."""


class WeightError(TensorlangError, ValueError):
    """Weights that do not fit a network: names the missing, unused or wrongly sized."""


class LossError(TensorlangError, ArithmeticError):
    """Training whose loss is no number any more: names the epoch and the step."""


class OperatorError(TensorlangError, LookupError):
    """An operator name that nothing defines, or that two things define."""


class RecordError(TensorlangError, ValueError):
    """A record, cache or database file that cannot be used: names the file."""


class TuningError(TensorlangError, RuntimeError):
    """A tuning run that cannot go on: names the storage, the operator, the reason."""
