"""From a function to a kernel that runs: lower, print, compile, cache.

A kernel is identified by the digest of its IR, its target, and the versions of all
that had a hand in it; it is built once, whoever asks, and found again in memory or on
disk. `cached_kernel` finds it by a name that is cheaper than the IR, so that a warm
process makes no IR either.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

from tensorlang import targets
from tensorlang.errors import CodegenError, TargetError
from tensorlang.ir.digest import digest
from tensorlang.ir.nodes import Function
from tensorlang.ir.printer import show
from tensorlang.runtime import cache, llvm, wrapper
from tensorlang.runtime.aliasing import safe_aliases
from tensorlang.runtime.kernel import Artifact, Kernel
from tensorlang.runtime.signature import Signature, signature_of, with_aliases
from tensorlang.targets import Target

_KERNELS: Final[dict[str, Kernel]] = {}
_NAMED: Final[dict[tuple[str, Target], Kernel]] = {}
_LOCKS: Final[dict[str, threading.Lock]] = {}

if hasattr(os, "register_at_fork"):
    # a thread that was building is not there in the child to release its lock
    os.register_at_fork(after_in_child=_LOCKS.clear)


def build(
    func: Function | Any,
    target: str | Target | None = None,
    *,
    trace: Any = None,
    store: bool = True,
) -> Kernel:
    """The kernel of a function, or of a `Schedule` with its function and trace.

    Args:
        func: what to build; it must be verified IR.
        target: for which device, by default this machine's CPU.
        trace: the schedule's steps, kept with the kernel for people to read.
        store: whether to remember the kernel, in memory and on disk.

    Raises:
        IRError: the function is not well formed.
        TargetError: the target is unknown or not present.
        CodegenError: the target cannot express the function.
    """
    chosen = targets.get(target)
    function = _function(func)
    steps = _trace(func if trace is None else trace)
    key = cache.key_of("kernel", digest(function), repr(chosen), llvm.versions())
    if not store:
        return Kernel(make_artifact(function, chosen, steps), chosen)
    return _once(key, chosen, lambda: (function, steps))


def cached_kernel(
    key: str,
    make: Callable[[], Function | Any],
    target: str | Target | None = None,
) -> Kernel:
    """The kernel called `key`; `make` gives its function only where none is cached.

    The key must say all that decides what `make` returns, but for the source files of
    tensorlang itself, which are part of every key. `make` may return a `Function`, or
    a `Schedule`.
    """
    chosen = targets.get(target)
    found = _NAMED.get((key, chosen))
    if found is not None:
        return found
    name = cache.key_of("name", key, repr(chosen), llvm.versions())
    with _lock(name):
        found = _NAMED.get((key, chosen)) or _by_name(name, chosen, make)
        _NAMED[key, chosen] = found
    return found


def make_artifact(function: Function, target: Target, trace: str = "") -> Artifact:
    """Lower, print and compile a function, without looking into any cache."""
    from tensorlang.codegen.llvm.render import render  # noqa: PLC0415 - not when warm
    from tensorlang.codegen.lower import lower  # noqa: PLC0415 - not when warm

    _need_llvm(target)
    signature = signature_of(function)
    lowered = lower(function, target)
    source = render(lowered, target)
    wrapped = wrapper.wrapper_text(signature, target.threads)
    compiled = llvm.compile_modules(source, wrapped)
    return Artifact(
        with_aliases(signature, safe_aliases(function)),
        compiled.object_code,
        show(function),
        show(lowered),
        source,
        trace,
    )


def forget() -> None:
    """Drop the kernels held in memory (those on disk stay)."""
    _KERNELS.clear()
    _NAMED.clear()


def _by_name(name: str, target: Target, make: Callable[[], Function | Any]) -> Kernel:
    """Find the digest that the disk knows under a name, or make it and file it."""
    alias = cache.load(name)
    made: list[Any] = []

    def source() -> tuple[Function, str]:
        subject = made[0] if made else make()
        return _function(subject), _trace(subject)

    if alias is None:
        made.append(make())
        function = _function(made[0])
        key = cache.key_of("kernel", digest(function), repr(target), llvm.versions())
        kernel = _once(key, target, source)
        cache.save(name, cache.Entry({"kernel": key}, {}))
        return kernel
    return _once(str(alias.header["kernel"]), target, source)


def _once(
    key: str, target: Target, source: Callable[[], tuple[Function, str]]
) -> Kernel:
    """The kernel of this key; built, by one thread, where no cache has it."""
    found = _KERNELS.get(key)
    if found is not None:
        return found
    with _lock(key):
        found = _KERNELS.get(key)
        if found is None:
            found = _KERNELS[key] = _load(key, target, source)
    return found


def _load(
    key: str, target: Target, source: Callable[[], tuple[Function, str]]
) -> Kernel:
    entry = cache.load(key)
    if entry is not None:
        return Kernel(_from_entry(entry), target)
    function, trace = source()
    artifact = make_artifact(function, target, trace)
    kernel = Kernel(artifact, target)
    cache.save(key, _to_entry(artifact))
    return kernel


def _lock(key: str) -> threading.Lock:
    return _LOCKS.setdefault(key, threading.Lock())


_TEXTS: Final = ("ir", "lowered", "source", "trace")


def _to_entry(artifact: Artifact) -> cache.Entry:
    texts = {name: getattr(artifact, name).encode() for name in _TEXTS}
    blobs = {"object": artifact.object_code, **texts}
    return cache.Entry(artifact.signature.to_json(), blobs)


def _from_entry(entry: cache.Entry) -> Artifact:
    return Artifact(
        Signature.from_json(entry.header),
        entry.blobs["object"],
        **{name: entry.blobs[name].decode() for name in _TEXTS},
    )


def _function(subject: Function | Any) -> Function:
    function = subject if isinstance(subject, Function) else subject.function
    if not isinstance(function, Function):
        raise CodegenError(f"{subject!r} is neither a function nor a schedule")
    return function


def _trace(subject: Any) -> str:
    """The steps of a trace or schedule as text, one a line."""
    if isinstance(subject, Function):
        return ""
    if isinstance(subject, str):
        return subject
    steps = getattr(subject, "trace", subject)
    return "\n".join(map(str, steps))


def _need_llvm(target: Target) -> None:
    if target.kind != "llvm":
        raise TargetError(f"no kernels are built for {target} yet; use target='llvm'")
