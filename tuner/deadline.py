"""A limit on the time of Python code that may not end: a user's schedule function."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Overdue(BaseException):
    """The time is up; no `Exception`, so that nothing on the way catches it."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `Overdue` in the body, between two of its instructions, when time is up.

    A single call into compiled code is not interrupted, only what comes after it.
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
