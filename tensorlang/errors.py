"""All errors that tensorlang raises deliberately, under one root.

A message says what was wrong, with which values, and what to do about it.
"""


class TensorlangError(Exception):
    """The root: catch this to catch everything tensorlang raises deliberately."""


class IRError(TensorlangError, ValueError):
    """A malformed tree: raised by constructors and the verifier."""


class DTypeError(IRError, TypeError):
    """Mismatched element types: names both sides."""


class ParseError(IRError):
    """IR text that does not parse: carries line and column in its message."""


class InterpreterError(TensorlangError):
    """A fault of the executed program: bounds, race, unwritten read, barrier."""


class ScheduleError(TensorlangError, ValueError):
    """An illegal schedule step: which rule, which loop, what would help."""


class CodegenError(TensorlangError):
    """IR that a target cannot express, or a compiler that refused the source."""


class TargetError(TensorlangError, ValueError):
    """An unknown target, or one that is not present on this machine."""


class ShapeError(TensorlangError, ValueError):
    """Shapes that do not suit an operator: names the operator and both shapes."""


class ArgumentError(TensorlangError, ValueError):
    """An argument outside its domain: a negative rate, an overlapping output."""


class KernelError(TensorlangError, RuntimeError):
    """A kernel that reported a fault while running, such as an index out of range.

    `code` is the fault code reported by the kernel's checks, ORed over threads.
    """

    code: int = 0


class DeviceError(TensorlangError, RuntimeError):
    """A device driver that refused or failed: during which operation, with its message.

    `lost` says that this process can no longer use the device.
    """

    lost: bool = False


class DeviceMemoryError(DeviceError, MemoryError):
    """A device out of memory: names the amount requested."""


class ElementError(TensorlangError, IndexError):
    """An index that no element has."""


class KeyReuseError(TensorlangError, RuntimeError):
    """A random key consumed twice: names both uses by file and line."""


class GraphError(TensorlangError, ValueError):
    """An invalid graph of operators: names the function, layer or line."""


class WeightError(TensorlangError, ValueError):
    """Weights that do not match a network: names those missing, unused or misshapen."""


class LossError(TensorlangError, ArithmeticError):
    """A training loss that is no longer finite: names the epoch and the step."""


class OperatorError(TensorlangError, LookupError):
    """An operator name that is undefined, or defined twice."""


class RecordError(TensorlangError, ValueError):
    """An unusable record, cache or database file: names the file."""


class TuningError(TensorlangError, RuntimeError):
    """A tuning run that cannot continue: names storage, operator and reason."""
