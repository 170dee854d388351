"""A time limit for Python code that may not terminate, such as schedule functions."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Overdue(BaseException):
    """The time limit is exceeded; not an `Exception`, to pass through handlers."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `Overdue` between two bytecodes of the body when the time is up.

    A call into compiled code is not interrupted; the exception follows its return.
    """
    caller = threading.get_ident()
    ended, turn = threading.Event(), threading.Lock()

    def strike() -> None:
        with turn:
            if not ended.is_set():
                _raise_in(ctypes.c_ulong(caller), ctypes.py_object(Overdue))

    timer = threading.Timer(seconds, strike)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with turn:
            ended.set()
