"""The files of an exported library, and what a C compiler makes of them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensorlang import templates
from tensorlang.errors import ArgumentError, CodegenError
from tensorlang.export.library import ALIGNED, Array, Library
from tensorlang.frozen import frozen
from tensorlang.runtime.cpu import pool
from tensorlang.runtime.cpu.wrapper import INLINE_BYTES
from tensorlang.version import __version__

if TYPE_CHECKING:
    from tensorlang.export.kernels import Kernel

_BYTES: Final = [f"\\{number:02X}" for number in range(256)]  # as LLVM writes them
_OBJECTS: Final = "objects"
_LISTED: Final = "exported_files.txt"
_FLAGS: Final = ("-std=c11", "-O2", "-fPIC", "-pthread")


@frozen
class Exported:
    """The files of an exported library.

    Attributes:
        folder: Where they are.
        name: Begins their names.
        objects: Kernels and constants.
        libraries: The static and the shared library; empty if `missing`.
        missing: What would have made the libraries, as a sentence; empty if it did.
    """

    folder: Path
    name: str
    objects: tuple[Path, ...]
    libraries: tuple[Path, ...] = ()
    missing: str = ""


def written(lib: Library, kernels: Sequence[Kernel], folder: Path) -> Exported:
    """Write a library's files, and compile it if there is a compiler.

    Raises:
        ArgumentError: the folder has other files than an earlier export's.
        CodegenError: the compiler refuses it.
        OSError: the folder is not writable.
    """
    machine = kernels[0].machine
    codes = {kernel.symbol: kernel.code for kernel in kernels}
    if lib.constants:
        name = f"{lib.name}_constants"
        codes[name] = machine.compile(constant_text(name, lib.constants))
    texts = {
        f"{lib.name}.h": "export.h.j2",
        f"{lib.name}.c": "export.c.j2",
        "tensorlang_pool.h": "export_pool.h.j2",
        "tensorlang_pool.c": "export_pool.c.j2",
        "main.c": "export_main.c.j2",
        "CMakeLists.txt": "export_cmake.j2",
    }
    libraries = [f"lib{lib.name}.a", f"lib{lib.name}.so"]
    objects = put_objects(codes, folder, [*texts, *libraries])
    devices = [m.target.device for m in dict.fromkeys(k.machine for k in kernels)]
    put_texts(
        lib,
        texts,
        folder,
        machines=", ".join(devices),
        kernels=kernels,
        objects=[str(path.relative_to(folder)) for path in objects],
        alone=any(kernel.alone for kernel in kernels),
        shares_each=pool.SHARES_EACH,
        idle_spins=pool.IDLE_SPINS,
        wait_spins=pool.WAIT_SPINS,
        inline_bytes=INLINE_BYTES,
    )
    return _compiled(Exported(folder, lib.name, objects), machine.triple)


def put_objects(
    codes: Mapping[str, bytes], folder: Path, others: Iterable[str]
) -> tuple[Path, ...]:
    """Write object code by name, in place of what an earlier export wrote.

    Args:
        codes: The code.
        folder: The library's folder.
        others: The names of the files that will be beside it.

    Raises:
        ArgumentError: the folder has other files than an earlier export's.
    """
    place, listed = folder / _OBJECTS, folder / _LISTED
    paths = tuple(place / f"{name}.o" for name in codes)
    names = [*(path.relative_to(folder).as_posix() for path in paths), *others]
    earlier = listed.read_text("utf-8").splitlines() if listed.is_file() else []
    for name in earlier:
        if (folder / name).parent.resolve() in (folder.resolve(), place.resolve()):
            (folder / name).unlink(missing_ok=True)
    taken = [folder / name for name in names if os.path.lexists(folder / name)]
    if taken:
        raise ArgumentError(
            f"{taken[0]} is there and was not written by an export: give a new folder"
        )
    place.mkdir(parents=True, exist_ok=True)
    listed.write_text("".join(f"{name}\n" for name in names), "utf-8")
    for path, code in zip(paths, codes.values(), strict=True):
        path.write_bytes(code)
    return paths


def constant_text(name: str, data: bytes) -> str:
    """Constant data of a library as LLVM IR."""
    text = "".join(map(_BYTES.__getitem__, data))
    return f'@{name} = hidden constant [{len(data)} x i8] c"{text}", align {ALIGNED}\n'


def put_texts(
    lib: Library, files: Mapping[str, str], folder: Path, **values: object
) -> None:
    """Write the files of templates."""
    sizes = [f"int64_t {name}" for name in lib.sizes]
    shapes = [tuple(a.extents) for a in lib.arrays if lib.sizes and a.shape]
    numbers = [f"{scalar.c_type} {scalar.name}" for scalar in lib.scalars]
    arrays = [array.name for array in lib.arrays]
    examples = [f"({scalar.c_type}){scalar.example!r}" for scalar in lib.scalars]
    for file, template in files.items():
        text = templates.render(
            template,
            lib=lib,
            NAME=lib.name.upper(),
            version=__version__,
            sizes=sizes,
            shapes=dict.fromkeys(shapes),
            own_parameters=[
                *sizes,
                *(f"{array.c_type}{array.name}" for array in lib.arrays),
                *numbers,
            ],
            names=[*lib.sizes, *arrays, *(scalar.name for scalar in lib.scalars)],
            numbers=numbers,
            nothing=[*lib.sizes, *["NULL"] * len(lib.arrays), *["0"] * len(numbers)],
            examples=[*lib.sizes, *arrays, *examples],
            counted=[(array, array.size(lib.sizes)) for array in lib.arrays],
            pattern=_pattern,
            scalar_types={scalar.dtype: scalar for scalar in lib.scalars}.values(),
            **values,
        )
        (folder / file).write_text(text, "utf-8")


def _pattern(array: Array) -> str:
    """The elements of an input in the example, valid for any use."""
    if array.dtype.is_float and array.dtype.bits >= 32:
        return f"({array.c_type.removeprefix('const ').rstrip(' *')})(n % 17) / 16"
    return "n % 2" if array.dtype.kind == "uint" else "0"


# ---------------------------------------------------------------- the libraries


def _compiled(made: Exported, triple: str) -> Exported:
    """Compile the launcher, and make the libraries of it and the objects."""
    compiler = _compiler(triple)
    if not compiler:
        wanted = f"{triple}-gcc" if triple else "cc"
        said = f"there is no C compiler ({wanted}, or CC): CMake makes the libraries"
        return Exported(made.folder, made.name, made.objects, missing=said)
    parts = [f"{made.name}.c", "tensorlang_pool.c"]
    codes = [Path(_OBJECTS) / f"{Path(part).stem}_host.o" for part in parts]
    for part, code in zip(parts, codes, strict=True):
        _run([*compiler, *_FLAGS, "-c", part, "-o", str(code)], made.folder)
    every = [*map(str, codes), *(str(p.relative_to(made.folder)) for p in made.objects)]
    static, shared = (made.folder / f"lib{made.name}.{kind}" for kind in ("a", "so"))
    static.unlink(missing_ok=True)
    _run([_archiver(triple), "rcs", static.name, *every], made.folder)
    _run(
        [*compiler, "-shared", "-pthread", *every, "-lm", "-o", shared.name],
        made.folder,
    )
    for code in codes:
        (made.folder / code).unlink()
    return Exported(made.folder, made.name, made.objects, (static, shared))


def _compiler(triple: str) -> list[str]:
    """The C compiler for a system: `CC`, or the usual one; empty if there is none."""
    asked = shlex.split(os.environ.get("CC", "")) if not triple else []
    names = [f"{triple}-gcc"] if triple else ["cc", "gcc", "clang"]
    found = (name for name in names if shutil.which(name))
    return asked or [name for name in [next(found, "")] if name]


def _archiver(triple: str) -> str:
    named = f"{triple}-ar"
    return named if triple and shutil.which(named) else "ar"


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(  # noqa: S603 - a compiler with names of ours
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CodegenError(f"{command[0]} refuses the library: {done.stderr[-2000:]}")
