"""The CUDA compilers NVRTC, ptxas and nvdisasm; none needs a GPU.

They come from PyPI (`pip install 'tensorlang[cuda-compile]'`), or from a CUDA toolkit
at `CUDA_HOME` or on the PATH. NVRTC compiles CUDA C++ to PTX in this process; ptxas, a
subprocess, assembles it to a cubin and reports registers, spills and shared memory.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tensorlang.errors import CodegenError, TargetError
from tensorlang.once import cache

REMEDY: Final = "pip install 'tensorlang[cuda-compile]', or set CUDA_HOME to a toolkit"
OPTIONS: Final = ("--std=c++17", "--fmad=false", "--device-int128")
_BOUNDS: Final = re.compile(r"^(\.maxntid .*)(\n\.minnctapersm .*)?$", re.MULTILINE)
_ENOUGH: Final = (4, 2, 1)  # blocks per SM (.minnctapersm)
_SECONDS: Final = 300
# not the static archives, nor the .alt. variants, that toolkits have beside them
_BUILTINS: Final = ("libnvrtc-builtins.so.*", "nvrtc-builtins64_*[0-9].dll")
_USAGE: Final = {
    "registers": re.compile(r"Used (\d+) registers"),
    "spill_bytes": re.compile(r"(\d+) bytes spill stores"),
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "shared_bytes": re.compile(r"(\d+) bytes smem"),
}


def missing() -> str:
    """Which compilers are missing, as a clause; empty if none."""
    lacking = [name for name in ("ptxas", "nvdisasm") if _tool(name) is None]
    if _library() is None:
        lacking.insert(0, "NVRTC")
    return f"{', '.join(lacking)} not found; {REMEDY}" if lacking else ""


@cache
def versions() -> str:
    """The versions of NVRTC and ptxas."""
    nvrtc = _nvrtc()
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    ptxas = _run(["ptxas", "--version"]).splitlines()[-1]
    return f"nvrtc {major.value}.{minor.value}, ptxas {ptxas}"


def ptx_of(source: str, arch: str, *, lines: bool = False) -> str:
    """Compile CUDA C++ to PTX for an architecture such as `sm_90a`, without FMA fusion.

    With `lines`, the PTX says which line of the source its instructions come from.

    Raises:
        CodegenError: NVRTC rejects the source; the message includes its log.
        TargetError: NVRTC is missing.
    """
    nvrtc = _nvrtc()
    program = ctypes.c_void_p()
    given = (source.encode(), b"kernel.cu", 0, None, None)
    _checked(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), *given))
    options = [*OPTIONS, f"--gpu-architecture={arch.replace('sm_', 'compute_')}"]
    options += ["--generate-line-info"] if lines else []
    array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), array):
            said = _text(nvrtc, "ProgramLog", program)
            raise CodegenError(f"NVRTC rejects the generated code: {said}")
        return _text(nvrtc, "PTX", program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def cubin_of(
    ptx: str, arch: str, *, lines: bool = False
) -> tuple[bytes, dict[str, int]]:
    """Assemble PTX; returns the cubin and the maximum resource use of its kernels.

    Resources: registers per thread, bytes of spills and stack, and bytes of static
    shared memory per block.

    Raises:
        CodegenError: ptxas rejects the PTX.
        TargetError: ptxas is missing.
    """
    with tempfile.TemporaryDirectory(prefix="tensorlang-") as folder:
        source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, "utf-8")
        options = ["-v", f"-arch={arch}", *(["-lineinfo"] if lines else [])]
        said = _run(["ptxas", *options, "-o", str(target), str(source)])
        found = {
            name: max(map(int, pattern.findall(said)), default=0)
            for name, pattern in _USAGE.items()
        }
        return target.read_bytes(), found


def whole_cubin_of(
    ptx: str, arch: str, *, lines: bool = False
) -> tuple[bytes, dict[str, int]]:
    """As `cubin_of`, but trading occupancy for fewer spills.

    ptxas may spill in order to fit more blocks on an SM. If it did, retry with lower
    `.minnctapersm` and keep what spills least.
    """
    cubin, resources = cubin_of(ptx, arch, lines=lines)
    for blocks in _ENOUGH:
        if not resources["spill_bytes"]:
            break
        bounded = _BOUNDS.sub(rf"\g<1>\n.minnctapersm {blocks}", ptx)
        try:
            other, used = cubin_of(bounded, arch, lines=lines)
        except CodegenError:  # too few registers for an instruction
            continue
        if used["spill_bytes"] < resources["spill_bytes"]:
            cubin, resources = other, used
    return cubin, resources


def sass_of(cubin: bytes, *, lines: bool = False) -> str:
    """SASS disassembly of a cubin, with the lines it comes from if the cubin has them.

    Raises:
        TargetError: nvdisasm is missing.
    """
    with tempfile.TemporaryDirectory(prefix="tensorlang-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        return _run(["nvdisasm", "-c", *(["-g"] if lines else []), str(path)])


def _run(command: Sequence[str]) -> str:
    name, *rest = command
    tool = _tool(name)
    if tool is None:
        raise TargetError(f"{name} is not found: {REMEDY}")
    done = subprocess.run(  # noqa: S603 - our own arguments, no shell
        [tool, *rest], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        raise CodegenError(f"{name} rejects the generated code: {done.stderr}")
    return done.stdout + done.stderr


def _text(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, room)
    return room.value.decode()


def _checked(nvrtc: ctypes.CDLL, code: int) -> None:
    if code:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise CodegenError(f"NVRTC: {nvrtc.nvrtcGetErrorString(code).decode()}")


@cache
def _nvrtc() -> ctypes.CDLL:
    path = _library()
    if path is None:
        raise TargetError(f"NVRTC is not found: {REMEDY}")
    # NVRTC opens these by bare name, which resolves once they are loaded
    for pattern in _BUILTINS:
        for beside in sorted(path.parent.glob(pattern)):
            ctypes.CDLL(str(beside))
    return ctypes.CDLL(str(path))


@cache
def _library() -> Path | None:
    """NVRTC, of the first folder that has a ptxas for its PTX; else of the first."""
    whole = [folder for folder in _folders() if (folder / "bin" / "ptxas").exists()]
    for folder in (*whole, *_folders()):
        for part in ("lib", "lib64", "bin"):
            found = sorted((folder / part).glob("*nvrtc.so.*")) or sorted(
                (folder / part).glob("nvrtc64_*.dll")
            )
            if found:
                return found[-1]
    return None


@cache
def _tool(name: str) -> str | None:
    """Path of a tool, NVRTC's own toolkit first: an older ptxas rejects its PTX."""
    library = _library()
    beside = (library.parent.parent,) if library else ()
    for folder in (*beside, *_folders()):
        found = shutil.which(name, path=str(folder / "bin"))
        if found:
            return found
    return shutil.which(name)


@cache
def _folders() -> tuple[Path, ...]:
    """Candidate toolkit folders: `CUDA_HOME`, those from PyPI, and nvcc's."""
    return tuple(_places())


def _places() -> Iterator[Path]:
    if asked := os.environ.get("CUDA_HOME"):
        yield Path(asked)
    spec = find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(root).iterdir(), reverse=True)
    if nvcc := shutil.which("nvcc"):
        yield Path(nvcc).resolve().parents[1]
    yield Path("/usr/local/cuda")
