"""From a function to a runnable kernel: lower, render, compile, cache.

A kernel's key is the digest of its IR, its target, and the versions of all tools
involved; it is built once and then found in memory or on disk. `cached_kernel` looks it
up by a key that is cheaper than the IR, so that a warm process builds no IR and does
not import the modules that would.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from operator import sub
from typing import TYPE_CHECKING, Final

from tensorlang import ir, lazy, targets
from tensorlang.errors import CodegenError, TargetError
from tensorlang.frame_room import frame_room
from tensorlang.frozen import frozen
from tensorlang.gc_pause import gc_paused
from tensorlang.runtime import backends, cache
from tensorlang.runtime.kernel import Artifact, Kernel
from tensorlang.runtime.signature import Signature
from tensorlang.targets import Target

with lazy.modules(__name__):  # a warm process needs none of these
    from tensorlang.codegen import checked as bounds_checks
    from tensorlang.codegen import meanings
    from tensorlang.ir import digest as digests
    from tensorlang.runtime import checked as checked_kernels
    from tensorlang.runtime import describing

if TYPE_CHECKING:
    from tensorlang.scheduling.schedule import Schedule

CHECKED_VARIABLE: Final = "TENSORLANG_CHECKED"
MEANING_VARIABLE: Final = "TENSORLANG_BY_MEANING"
_CODES: Final = ("object_code", "wrapper_code")
_TEXTS: Final = ("ir", "lowered", "source", "trace")
_STAGES: Final = ("lower", "render", "compile")
_KERNELS: Final[dict[str, Kernel]] = {}
_NAMED: Final[dict[tuple[str, Target], Kernel]] = {}
_LOCKS: Final[dict[str, threading.Lock]] = {}

if hasattr(os, "register_at_fork"):
    # locks held by the parent's other threads would never be released in the child
    os.register_at_fork(after_in_child=_LOCKS.clear)


@frozen
class Recipe:
    """What to build, and its history for people to read.

    `verified`: the function derives from a verified one and must not be verified again;
    with bounds checks it reads other elements than it updates, which the verifier
    rejects.
    """

    function: ir.Function
    trace: str = ""
    knobs: Mapping[str, object] = field(default_factory=dict)
    verified: bool = False


def build(
    func: ir.Function | Schedule,
    target: str | Target | None = None,
    *,
    trace: str | Iterable[object] | None = None,
    knobs: Mapping[str, object] | None = None,
    store: bool = True,
    checked: bool | None = None,
    by_meaning: bool | None = None,
) -> Kernel:
    """The kernel of a function, or of a `Schedule` with its function and trace.

    Args:
        func: What to build; verified IR.
        target: Target or its name; by default this machine's CPU.
        trace: The schedule's steps, kept with the kernel for people to read.
        knobs: The schedule's knob values, printed in the header of the source.
        store: Whether to cache the kernel in memory and on disk. (A GPU's machine code
            is kept on disk by its source in any case.)
        checked: Whether the kernel checks the bounds of every access and raises
            `KernelError` (access, index, size, line) instead of touching other memory.
            CPU only, and slow. Default: whether `TENSORLANG_CHECKED=1`.
        by_meaning: Whether dot and matrix products are replaced by the arithmetic that
            they mean, so that a kernel for another CPU runs on this one: slow, with the
            same bits. Default: whether `TENSORLANG_BY_MEANING=1`.

    Raises:
        IRError: the function is malformed.
        TargetError: the target is unknown or absent, or `checked` with a GPU target.
        CodegenError: the target cannot express the function.
    """
    chosen = targets.get(target)
    recipe = _recipe(func, trace, knobs)
    if _is_set(MEANING_VARIABLE) if by_meaning is None else by_meaning:
        recipe = replace(recipe, function=meanings.by_meaning(recipe.function))
    if _is_set(CHECKED_VARIABLE) if checked is None else checked:
        return _checked(recipe, chosen, store=store)
    return _built(recipe, chosen, store=store)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def _checked(recipe: Recipe, target: Target, *, store: bool) -> Kernel:
    """A kernel that checks the bounds of its accesses."""
    if target.model != "cpu":
        raise TargetError(
            f"a checked build is for CPUs, not for {target.name}: "
            "build for llvm, where the same accesses are out of bounds"
        )
    ir.verify(recipe.function)
    function, accesses = bounds_checks.checked(recipe.function)
    kernel = _built(
        replace(recipe, function=function, verified=True), target, store=store
    )
    return checked_kernels.CheckedKernel(
        kernel, describing.signature_of(recipe.function), accesses
    )


def _built(recipe: Recipe, chosen: Target, *, store: bool) -> Kernel:
    if not store:
        return _loaded(make_artifact(recipe, chosen), chosen)
    return _once(_key(recipe, chosen), chosen, lambda: recipe)


def cached_kernel(
    key: str,
    make: Callable[[], ir.Function | Schedule],
    target: str | Target | None = None,
    *,
    knobs: Mapping[str, object] | None = None,
) -> Kernel:
    """The kernel called `key`; `make` is called only if none is cached.

    The key must determine what `make` (a `Function` or a `Schedule`) returns, except
    for tensorlang's own source files, which are part of every key.
    """
    chosen = target if isinstance(target, Target) else targets.get(target)
    found = _NAMED.get((key, chosen))
    if found is not None:
        return found
    if _is_set(CHECKED_VARIABLE) or _is_set(MEANING_VARIABLE):
        return _NAMED.setdefault((key, chosen), build(make(), chosen, knobs=knobs))
    name = _name(key, chosen)
    with _lock(name):
        found = _NAMED.get((key, chosen))
        if found is None:
            found = _by_name(name, chosen, lambda: _recipe(make(), None, knobs))
            _NAMED[key, chosen] = found
    return found


def is_cached(key: str, target: Target) -> bool:
    """Whether the kernel called `key` is in memory or on disk."""
    return (key, target) in _NAMED or cache.has(_name(key, target))


def name_kernel(key: str, kernel: Kernel, target: Target) -> None:
    """Put the name `key` of a kernel on disk, unless there is one of that name."""
    name = _name(key, target)
    own = next((k for k, held in [*_KERNELS.items()] if held is kernel), None)
    if own is not None and not cache.has(name):
        cache.save(name, cache.Entry({"kernel": own}, {}))


def file_kernel(
    key: str, make: Callable[[], ir.Function | Schedule], target: Target
) -> None:
    """Put the kernel called `key` on disk if it is not there, without loading it."""
    name = _name(key, target)
    if cache.has(name):
        return
    kernel = file_build(make(), target)
    cache.save(name, cache.Entry({"kernel": kernel}, {}))


def file_build(func: ir.Function | Schedule, target: Target) -> str:
    """Put on disk what `build` would load, if it is not there; its key."""
    recipe = _recipe(func, None, None)
    key = _key(recipe, target)
    if not cache.has(key):
        cache.save(key, _to_entry(make_artifact(recipe, target)))
    return key


@gc_paused()
@frame_room
def make_artifact(recipe: Recipe, target: Target) -> Artifact:
    """Verify, lower, render and compile a function, bypassing the cache."""
    if not recipe.verified:
        ir.verify(recipe.function)
    backend = backends.of(target)
    signature = describing.signature_of(recipe.function)
    times = [time.perf_counter()]
    lowered = backend.lower(recipe.function, target)
    times.append(time.perf_counter())
    source = backend.render(lowered, target, recipe.knobs)
    times.append(time.perf_counter())
    code, wrapped = backend.compiled(source, lowered, signature, target)
    times.append(time.perf_counter())
    return Artifact(
        signature,
        code,
        wrapped,
        ir=ir.show(recipe.function),
        lowered=ir.show(lowered),
        source=source,
        trace=recipe.trace,
        knobs=dict(recipe.knobs),
        seconds=dict(zip(_STAGES, map(sub, times[1:], times), strict=True)),
    )


def forget() -> None:
    """Drop the kernels held in memory; those on disk stay."""
    _KERNELS.clear()
    _NAMED.clear()


def _by_name(name: str, target: Target, source: Callable[[], Recipe]) -> Kernel:
    """The kernel whose key is on disk under this name; built and filed if missing."""
    known = cache.load(name)
    if known is not None:
        return _once(str(known.header["kernel"]), target, source)
    recipe = source()
    key = _key(recipe, target)
    kernel = _once(key, target, lambda: recipe)
    cache.save(name, cache.Entry({"kernel": key}, {}))
    return kernel


def _once(key: str, target: Target, source: Callable[[], Recipe]) -> Kernel:
    """The kernel of this key; one thread loads or builds it while others wait."""
    found = _KERNELS.get(key)
    if found is not None:
        return found
    with _lock(key):
        found = _KERNELS.get(key)
        if found is None:
            found = _KERNELS[key] = _load(key, target, source)
    return found


def _load(key: str, target: Target, source: Callable[[], Recipe]) -> Kernel:
    entry = cache.load(key)
    if entry is not None:
        return _loaded(_from_entry(entry), target)
    artifact = make_artifact(source(), target)
    kernel = _loaded(artifact, target)
    cache.save(key, _to_entry(artifact))
    return kernel


def _name(key: str, target: Target) -> str:
    """File name, on disk, of the kernel called `key`."""
    return cache.key_of("name", key, repr(target), _versions(target))


def _lock(key: str) -> threading.Lock:
    return _LOCKS.setdefault(key, threading.Lock())


def _key(recipe: Recipe, target: Target) -> str:
    function = digests.digest(recipe.function)
    return cache.key_of("kernel", function, repr(target), _versions(target))


def _to_entry(artifact: Artifact) -> cache.Entry:
    texts = {name: getattr(artifact, name).encode() for name in _TEXTS}
    codes = {name: getattr(artifact, name) for name in _CODES}
    header = {
        "signature": artifact.signature.to_json(),
        "knobs": artifact.knobs,
        "seconds": artifact.seconds,
    }
    return cache.Entry(header, {**codes, **texts})


def _from_entry(entry: cache.Entry) -> Artifact:
    blobs = entry.blobs
    texts = {name: blobs[name].decode() for name in _TEXTS}
    return Artifact(
        signature=Signature.from_json(entry.header["signature"]),
        object_code=blobs["object_code"],
        wrapper_code=blobs["wrapper_code"],
        knobs=entry.header["knobs"],
        seconds=entry.header["seconds"],
        **texts,
    )


def _recipe(
    subject: ir.Function | Schedule,
    trace: str | Iterable[object] | None,
    knobs: Mapping[str, object] | None,
) -> Recipe:
    """The recipe of a function, or of an object with a `function` attribute."""
    function = getattr(subject, "function", subject)
    if not isinstance(function, ir.Function):
        raise CodegenError(f"{subject!r} is neither a function nor a schedule")
    steps = getattr(subject, "trace", "") if trace is None else trace
    text = steps if isinstance(steps, str) else "\n".join(map(str, steps))
    return Recipe(function, text, knobs or getattr(subject, "knobs", {}))


def _loaded(artifact: Artifact, target: Target) -> Kernel:
    kernel: Kernel = backends.of(target).load(artifact, target)
    return kernel


def _versions(target: Target) -> str:
    return str(backends.of(target).versions(target))
