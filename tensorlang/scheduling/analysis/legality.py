"""The legality rules of scheduling: a table of named checks that primitives call.

A check returns `None` if its rule holds, otherwise a sentence: which loop or block
violates it, why, and what would make it legal. The decorator registers it under the
rule's name and turns the sentence into a `ScheduleError`:

    @legality("fused loops are perfectly nested")
    def nothing_between(outer: For, inner: str) -> str | None: ...

A rule can be disabled by name, for tests that show what it protects:

    with disabled("fused loops are perfectly nested"): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Final, ParamSpec

from tensorlang.errors import ScheduleError
from tensorlang.scheduling.primitives import PRIMITIVES

P = ParamSpec("P")

LEGALITY: Final[dict[str, Callable[..., None]]] = {}
_off: ContextVar[frozenset[str]] = ContextVar("_off", default=frozenset())


def legality(rule: str) -> Callable[[Callable[P, str | None]], Callable[P, None]]:
    """Register a check under the name of its rule.

    The decorated function raises `ScheduleError` with the sentence that the check
    returned, unless the rule is `disabled`.
    """

    def register(check: Callable[P, str | None]) -> Callable[P, None]:
        if rule in LEGALITY:
            raise ScheduleError(f"two checks are registered for the rule {rule!r}")

        @wraps(check)
        def enforce(*args: P.args, **kwargs: P.kwargs) -> None:
            if rule in _off.get():
                return
            complaint = check(*args, **kwargs)
            if complaint is not None:
                raise ScheduleError(f"{complaint} [rule: {rule}]")

        LEGALITY[rule] = enforce
        return enforce

    return register


@contextmanager
def disabled(*rules: str) -> Iterator[None]:
    """Disable the named rules inside a `with`, in this thread only.

    Raises:
        ScheduleError: no check is registered under such a name.
    """
    if not LEGALITY.keys() >= set(rules):
        PRIMITIVES.load()  # importing a primitive registers its rules
    for rule in rules:
        if rule not in LEGALITY:
            known = ", ".join(sorted(LEGALITY))
            raise ScheduleError(f"there is no rule {rule!r}; the rules are: {known}")
    token = _off.set(_off.get() | set(rules))
    try:
        yield
    finally:
        _off.reset(token)
