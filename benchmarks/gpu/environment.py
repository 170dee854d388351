"""Prepare a machine without a package index, using the packages in WHEELS.

The machine's own packages are used as they are; only missing or outdated ones are
installed, into a separate folder, so that torch, JAX and Triton keep the NumPy they
were built for. PyCUDA is built from source against the machine's toolkit.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

REGISTRY_HINT = (
    "run `make bench-gpu-pack WHEELS=folder` on a machine with a package index"
)
# distribution -> minimum version, for imports of tensorlang and its tests
NEEDED = {
    "numpy": "1.26",
    "ml_dtypes": "0.5",
    "llvmlite": "0.46",
    "jinja2": "3.1",
    "MarkupSafe": "2",
    "optuna": "4.0",
    "alembic": "1.5",
    "Mako": "1.1",
    "colorlog": "6",
    "sqlalchemy": "1.4.2",
    "tqdm": "4",
    "PyYAML": "5",
    "packaging": "20",
    "typing_extensions": "4",
    "typer": "0.12",
    "click": "8",
    "shellingham": "1.3",
    "rich": "13",
    "pygments": "2",
    "markdown-it-py": "2",
    "mdurl": "0",
    "platformdirs": "4",
    "filelock": "3.13",
    "pytest": "8",
    "pluggy": "1",
    "iniconfig": "1",
    "hypothesis": "6.100",
    "sortedcontainers": "2",
    "pytools": "2024",
    "siphash24": "1.6",
    "setuptools": "77",
}
# a header that PyCUDA includes and some toolkits lack
_PROFILER = """\
#pragma once
#include <cuda.h>
typedef enum { CU_OUT_KEY_VALUE_PAIR, CU_OUT_CSV } CUoutput_mode;
inline CUresult cuProfilerInitialize(const char *, const char *, CUoutput_mode)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}
inline CUresult cuProfilerStart() { return CUDA_ERROR_NOT_SUPPORTED; }
inline CUresult cuProfilerStop() { return CUDA_ERROR_NOT_SUPPORTED; }
"""


def gpu() -> str:
    """The name of the first GPU; empty if the driver finds none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    handle, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), 0):
        return ""
    driver.cuDeviceGetName(name, len(name), handle)
    return name.value.decode()


def toolkit() -> Path | None:
    """The CUDA toolkit: `CUDA_HOME`, nvcc on the PATH, or the default location."""
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).resolve().parents[1]]
    for place in filter(None, [*places, "/usr/local/cuda"]):
        if (Path(place) / "include" / "cuda.h").is_file():
            return Path(place)
    return None


def version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:3]))


def lacking(wheels: Path | None = None) -> list[str]:
    """Distributions that are missing or outdated here.

    Further ones in a folder of wheels are their dependencies.
    """
    files = wheels.glob("*.whl") if wheels else ()
    brought = {path.name.partition("-")[0]: "0" for path in files}
    listed = {_plain(name) for name in NEEDED}
    more = {
        name: least for name, least in brought.items() if _plain(name) not in listed
    }
    found = []
    for name, least in {**NEEDED, **more}.items():
        try:
            here = metadata.version(name)
        except metadata.PackageNotFoundError:
            here = ""
        if not here or version(here) < version(least):
            found.append(name)
    return found


def _plain(name: str) -> str:
    """The normalised name of a distribution."""
    return re.sub(r"[-_.]+", "_", name).lower()


def wheel_of(name: str, folder: Path) -> Path | None:
    """The newest wheel of a distribution in a folder that fits this Python."""
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    fitting = [
        path
        for path in folder.glob("*.whl")
        if _plain(path.name.partition("-")[0]) == _plain(name)
        and any(
            tag in path.name for tag in ("-py3-", "-py2.py3-", f"-{own}-", "-abi3-")
        )
    ]
    return max(fitting, key=lambda path: version(path.name.split("-")[1]), default=None)


def install(site: Path, wheels: Path | None) -> list[str]:
    """Install missing packages from the folder; return a report line for each.

    Raises:
        RuntimeError: a package is neither installed nor in the folder.
    """
    site.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in lacking(wheels) if _plain(name) != "pycuda"]
    if not wanted:
        return ["all packages are here"]
    found = {name: wheel_of(name, wheels) if wheels else None for name in wanted}
    absent = [name for name, path in found.items() if path is None]
    if absent:
        place = f"neither here nor in {wheels}" if wheels else "missing here"
        raise RuntimeError(f"{', '.join(absent)}: {place}; {REGISTRY_HINT}")
    _pip(site, [str(path) for path in found.values()])
    return [f"installed {', '.join(wanted)}"]


def _pip(site: Path, files: list[str]) -> None:
    options = ["--no-index", "--no-deps", "--no-compile", "--upgrade", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(site)]
    subprocess.run([*command, *files], check=True)  # noqa: S603 - our own arguments


def pycuda(
    site: Path, wheels: Path | None, work: Path, kept: Path | None = None
) -> list[str]:
    """Provide PyCUDA: installed, from a wheel, or built; return report lines.

    Args:
        site: Where to install it.
        wheels: A folder of packages.
        work: The build folder.
        kept: Where a built wheel is kept for later runs.

    Raises:
        RuntimeError: neither is available, or there is no toolkit to build it with.
    """
    try:
        return [f"pycuda {metadata.version('pycuda')} is here"]
    except metadata.PackageNotFoundError:
        pass
    folders = [folder for folder in (wheels, kept) if folder]
    found = (wheel_of("pycuda", folder) for folder in folders)
    ready = next(filter(None, found), None)
    if ready is None:
        ready = _built(wheels, work)
        if kept:
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy(ready, kept)
    _pip(site, [str(ready)])
    return [f"installed {ready.name}"]


def _built(wheels: Path | None, work: Path) -> Path:
    """Build a wheel of PyCUDA."""
    sources = sorted(wheels.glob("pycuda-*.tar.gz")) if wheels else []
    if not sources:
        raise RuntimeError(f"pycuda is not here, nor its source; {REGISTRY_HINT}")
    root = toolkit()
    if root is None:
        raise RuntimeError(
            "PyCUDA needs a CUDA toolkit to be built: set CUDA_HOME to one"
        )
    work.mkdir(parents=True, exist_ok=True)
    with tarfile.open(sources[-1]) as archive:
        archive.extractall(work, filter="data")
    folder = work / sources[-1].name.removesuffix(".tar.gz")
    (folder / "siteconf.py").write_text(_siteconf(root))
    if not (root / "include" / "cudaProfiler.h").is_file():
        (folder / "src/cpp/cudaProfiler.h").write_text(_PROFILER)
    build = Path(__file__).with_name("build_in_parallel.py")
    command = [sys.executable, str(build), "bdist_wheel", "--dist-dir", str(work)]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603 - our own arguments
    return max(work.glob("pycuda-*.whl"))


def _driver(places: list[Path]) -> str:
    """The linker's name of the driver library; its file name if it has no link."""
    linked = any((place / "libcuda.so").exists() for place in places)
    return "cuda" if linked else ":libcuda.so.1"


def _siteconf(root: Path) -> str:
    """PyCUDA's settings: only the driver library, without OpenGL and CURAND."""
    places = [root / "lib64", root / "lib", root / "lib64/stubs", root / "lib/stubs"]
    places += [Path("/usr/local/nvidia/lib64"), Path("/usr/lib/x86_64-linux-gnu")]
    places = [place for place in places if place.is_dir()]
    settings = {
        "BOOST_INC_DIR": [],
        "BOOST_LIB_DIR": [],
        "BOOST_COMPILER": "gcc43",
        "USE_SHIPPED_BOOST": True,
        "BOOST_PYTHON_LIBNAME": ["boost_python"],
        "BOOST_THREAD_LIBNAME": ["boost_thread"],
        "CUDA_TRACE": False,
        "CUDA_ROOT": str(root),
        "CUDA_ENABLE_GL": False,
        "CUDA_ENABLE_CURAND": False,
        "CUDADRV_LIB_DIR": list(map(str, places)),
        "CUDADRV_LIBNAME": [_driver(places)],
        "CUDART_LIB_DIR": [],
        "CUDART_LIBNAME": [],
        "CURAND_LIB_DIR": [],
        "CURAND_LIBNAME": [],
        "CXXFLAGS": ["-O1", "-w"],
        "LDFLAGS": [],
    }
    return "".join(f"{name} = {value!r}\n" for name, value in settings.items())
