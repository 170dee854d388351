"""LLVM on the host: from textual IR to optimised object code to loaded addresses.

`compile_module` optimises a module and emits relocatable object code; `link` loads such
objects, fresh or from the cache, through LLJIT. The loops are already tiled, unrolled
and vectorised by their schedule, so LLVM's passes for that are off.

LLVM is loaded at first use and always used under one lock. The lock is also held across
`fork`, so that a child never inherits a compiler interrupted half-way.
"""

from __future__ import annotations

import itertools
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from tensorlang import hardware
from tensorlang.errors import CodegenError
from tensorlang.forking import COMPILING
from tensorlang.runtime.cpu import compile_process

if TYPE_CHECKING:
    from llvmlite import binding

SPEED: Final = 3  # LLVM's -O level
_X86: Final = ("x86_64", "AMD64")
# LLVM types that only some x86 processors support -> the feature they need
_NEEDS: Final = {"half": "f16c", "bfloat": "avx512bf16"}
_RISKY: Final = re.compile(rf"\b(?:to|x|fpext|bitcast) ({'|'.join(_NEEDS)})\b")
_NUMBERS: Final = itertools.count()

P = ParamSpec("P")
R = TypeVar("R")


def locked(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, serialised, and never running during a fork."""

    @wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with COMPILING:
            return function(*args, **kwargs)

    return alone


class Library:
    """Code loaded into this process; unloaded when it is no longer referenced."""

    __slots__ = ("__weakref__", "_tracker", "addresses")

    def __init__(
        self, tracker: binding.ResourceTracker, addresses: Mapping[str, int]
    ) -> None:
        self._tracker = tracker
        self.addresses = dict(addresses)

    def __getitem__(self, symbol: str) -> int:
        return self.addresses[symbol]


@locked
def versions() -> str:
    """LLVM's version, and the name and features of the host CPU.

    Object code is reusable exactly if this text is equal.
    """
    binding = _binding()
    number = ".".join(map(str, binding.llvm_version_info))
    return f"llvm {number} {' '.join(_host())} O{SPEED}"


@locked
def compile_quickly(text: str) -> bytes:
    """Object code, unoptimised; for straight-line code."""
    return bytes(_machine(*_host(), 0).emit_object(_parse(text)))


@locked
def compile_module(text: str) -> bytes:
    """Object code of LLVM IR, optimised for the host.

    Raises:
        CodegenError: LLVM rejects the module (the message includes LLVM's own, with
            the line), or the module is for another processor.
    """
    return _emitted(text, listed=False)


def _emitted(text: str, *, listed: bool) -> bytes:
    """Object code of a module, or assembly if `listed`."""
    _check(text)
    if compile_process.is_risky(text):
        code = compile_process.COMPILER.compile(text, *_host(), listed=listed)
        if code is not None:
            return code
    return emitted(text, *_host(), listed=listed, optimised=True)


def emitted(
    text: str, cpu: str, features: str, *, listed: bool, optimised: bool
) -> bytes:
    """Object code, or assembly if `listed`, for a processor by LLVM's names.

    Raises:
        CodegenError: LLVM rejects the module.
    """
    machine = _machine(cpu, features)
    module = _parse(text)
    if optimised:
        _optimise(module, machine)
    if listed:
        return str(machine.emit_assembly(module)).encode()
    return bytes(machine.emit_object(module))


@locked
def compile_for(
    text: str, triple: str, cpu: str, *, features: str = "", listed: bool = False
) -> bytes:
    """Object code, or assembly, for another processor, by LLVM's names of all.

    Raises:
        CodegenError: LLVM rejects the module.
    """
    binding = _binding()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = _new_machine(binding.Target.from_triple(triple), cpu, features)
    module = _parse(text)
    module.triple = triple
    _optimise(module, machine)
    if listed:
        return str(machine.emit_assembly(module)).encode()
    return bytes(machine.emit_object(module))


@locked
def assembly(text: str) -> str:
    """Host assembly of a module."""
    return _emitted(text, listed=True).decode()


@locked
def link(
    objects: Sequence[bytes],
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
) -> Library:
    """Load object code; `imports` maps undefined symbols to addresses.

    Other undefined symbols are looked up in this process (libc, CPython).

    Raises:
        CodegenError: an object is broken or a symbol is undefined.
    """
    builder = _binding().JITLibraryBuilder().add_current_process()
    for code in objects:
        builder.add_object_img(code)
    for name, address in (imports or {}).items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    try:
        tracker = builder.link(_engine(), f"tensorlang-{next(_NUMBERS)}")
    except RuntimeError as error:
        raise CodegenError(f"LLVM could not link {exports[0]}: {error}") from error
    return Library(tracker, {name: tracker[name] for name in exports})


def _parse(text: str) -> binding.ModuleRef:
    binding = _binding()
    try:
        module = binding.parse_assembly(text, binding.create_context())
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"LLVM rejects the generated code: {error}") from error
    return module


def _check(text: str) -> None:
    """Reject types that this processor does not support: LLVM could abort."""
    if platform.machine() not in _X86:
        return
    have = set(_features().split(","))
    for word in set(_RISKY.findall(text)):
        if f"+{_NEEDS[word]}" not in have:
            raise CodegenError(
                f"the module uses {word}, which needs {_NEEDS[word]}; LLVM does not "
                f"detect it on this processor"
            )


def _optimise(module: binding.ModuleRef, machine: binding.TargetMachine) -> None:
    """Run LLVM's default pipeline without loop vectorisation and unrolling."""
    binding = _binding()
    options = binding.create_pipeline_tuning_options(speed_level=SPEED)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_interleaving = False
    options.loop_unrolling = False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


@cache
def _binding() -> Any:
    from llvmlite import binding  # noqa: PLC0415 - 170 MB, only where needed

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@cache
def _features() -> str:
    """The features that LLVM detects, except those that the system hides."""
    found = _binding().get_host_cpu_features()
    for name in filter(hardware.processor().hides, found):
        found[name] = False
    return str(found.flatten())


def _new_machine(
    target: binding.Target, cpu: str, features: str = "", level: int = SPEED
) -> binding.TargetMachine:
    """A code generator for position-independent code, loadable anywhere."""
    return target.create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small"
    )


@cache
def _host() -> tuple[str, str]:
    """LLVM's names of this processor and its features."""
    return _binding().get_host_cpu_name(), _features()


def _fresh_machine(
    cpu: str, features: str, level: int = SPEED
) -> binding.TargetMachine:
    """A code generator for a processor of this machine's architecture."""
    target = _binding().Target.from_default_triple()
    return _new_machine(target, cpu, features, level)


_machine: Final = cache(_fresh_machine)


@cache
def _engine() -> binding.LLJIT:
    """The JIT that holds all loaded code; never disposed: threads sleep in it.

    It links with JITLink, which places an object's sections side by side. LLVM's older
    linker (RuntimeDyld) maps them separately, and aborts where they end up more than
    2 GiB apart, as happens in large processes.
    """
    return _binding().create_lljit_compiler(_fresh_machine(*_host()), use_jit_link=True)
