"""LLVM on the host: text to optimised object code, and object code to addresses.

Modules are textual LLVM IR. `compile_module` optimises one and emits it as relocatable
object code; `link` loads such objects, fresh or from the cache, through LLJIT. Our
loops are already tiled, unrolled and vectorised by their schedule, so the passes that
would do it again are off.

LLVM is loaded at the first use, and always used under one lock, which is also held
across `fork`, so that a child never inherits a compiler stopped half-way.
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
from tensorlang.runtime import apart

if TYPE_CHECKING:
    from llvmlite import binding

SPEED: Final = 3  # of LLVM's -O levels
_X86: Final = ("x86_64", "AMD64")
# LLVM's word for what only some processors of this kind have -> the feature
_NEEDS: Final = {"half": "f16c", "bfloat": "avx512bf16"}
_RISKY: Final = re.compile(rf"\b(?:to|x|fpext|bitcast) ({'|'.join(_NEEDS)})\b")
_NUMBERS: Final = itertools.count()

P = ParamSpec("P")
R = TypeVar("R")


def locked(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, run by one thread at a time, and by none across a fork."""

    @wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with COMPILING:
            return function(*args, **kwargs)

    return alone


class Library:
    """Code loaded into this process; unloaded when nothing refers to it any more."""

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
    """LLVM's version, the host CPU as LLVM names it, and its features.

    Object code is reusable exactly where this text is the same.
    """
    binding = _binding()
    number = ".".join(map(str, binding.llvm_version_info))
    return f"llvm {number} {binding.get_host_cpu_name()} {_features()} O{SPEED}"


@locked
def compile_quickly(text: str) -> bytes:
    """Object code of a text that is fast as it stands: straight-line code, no loops."""
    return bytes(_machine(*_host(), 0).emit_object(_parse(text)))


@locked
def compile_module(text: str) -> bytes:
    """Object code of an LLVM IR text, optimised for the host.

    Raises:
        CodegenError: LLVM refuses a text; the message holds LLVM's own words and the
            line of the text that it points to. Or the text is for another processor.
    """
    return _emitted(text, listed=False)


def _emitted(text: str, *, listed: bool) -> bytes:
    """Object code of a text, or assembly."""
    _check(text)
    if apart.is_risky(text):
        code = apart.COMPILER.compile(text, *_host(), listed=listed)
        if code is not None:
            return code
    return emitted(text, *_host(), listed=listed, optimised=True)


def emitted(
    text: str, cpu: str, features: str, *, listed: bool, optimised: bool
) -> bytes:
    """Object code, or assembly, for a processor of this kind, by LLVM's names.

    Raises:
        CodegenError: LLVM refuses the text.
    """
    machine = _machine(cpu, features)
    module = _parse(text)
    if optimised:
        _optimise(module, machine)
    if listed:
        return str(machine.emit_assembly(module)).encode()
    return bytes(machine.emit_object(module))


@locked
def compile_for(text: str, triple: str, cpu: str) -> bytes:
    """Object code of a text for another processor, by LLVM's names of both.

    Raises:
        CodegenError: LLVM refuses the text.
    """
    binding = _binding()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = _new_machine(binding.Target.from_triple(triple), cpu)
    module = _parse(text)
    module.triple = triple
    _optimise(module, machine)
    return bytes(machine.emit_object(module))


@locked
def assembly(text: str) -> str:
    """The host's assembly of the same text, for people to read."""
    return _emitted(text, listed=True).decode()


@locked
def link(
    objects: Sequence[bytes],
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
) -> Library:
    """Load object code; `imports` are addresses of symbols that it leaves open.

    Whatever else it leaves open is looked up in this process (libc, CPython).

    Raises:
        CodegenError: an object is broken or a symbol is nowhere to be found.
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
        raise CodegenError(f"LLVM refuses the generated text: {error}") from error
    return module


def _check(text: str) -> None:
    """Refuse what has no instruction here: LLVM could abort the process.

    Raises:
        CodegenError: the text is for a processor with more features.
    """
    if platform.machine() not in _X86:
        return
    have = set(_features().split(","))
    for word in set(_RISKY.findall(text)):
        if f"+{_NEEDS[word]}" not in have:
            raise CodegenError(
                f"the text uses {word}, which needs {_NEEDS[word]}, and LLVM does not "
                f"find that on this processor"
            )


def _optimise(module: binding.ModuleRef, machine: binding.TargetMachine) -> None:
    """Run LLVM's default pipeline without the passes that re-schedule loops."""
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
    from llvmlite import binding  # noqa: PLC0415 - 170 MB, where it is needed

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@cache
def _features() -> str:
    """What LLVM finds on this processor, but for what the system hides of it."""
    found = _binding().get_host_cpu_features()
    for name in filter(hardware.processor().hides, found):
        found[name] = False
    return str(found.flatten())


def _new_machine(
    target: binding.Target, cpu: str, features: str = "", level: int = SPEED
) -> binding.TargetMachine:
    """A code generator: position independent, so what it makes loads anywhere."""
    return target.create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small"
    )


def _host() -> tuple[str, str]:
    """This processor and its features, by LLVM's names."""
    return _binding().get_host_cpu_name(), _features()


def _fresh_machine(
    cpu: str, features: str, level: int = SPEED
) -> binding.TargetMachine:
    """A code generator for a processor of this machine's kind."""
    target = _binding().Target.from_default_triple()
    return _new_machine(target, cpu, features, level)


_machine: Final = cache(_fresh_machine)


@cache
def _engine() -> binding.LLJIT:
    """The JIT that holds all loaded code; never disposed, for threads sleep in it.

    It links with JITLink, which lays an object's sections side by side. LLVM's older
    linker maps each where there is room, and aborts the process where that is more than
    2 GiB apart, as happens in large processes.
    """
    return _binding().create_lljit_compiler(_fresh_machine(*_host()), use_jit_link=True)
