"""Machine code of kernels by their source, whichever machine compiled it.

A kernel's entry in the cache is for one kind of CPU and one Python. What NVRTC and
ptxas make of its source is the same everywhere: it has an entry of its own, so that a
cache folder that was filled elsewhere spares a machine with a GPU the compiling.
"""

from __future__ import annotations

import re
from typing import Final

from tensorlang.runtime import cache
from tensorlang.runtime.cuda import toolchain

_BUILD: Final = re.compile(r"\.r[\d.]+/\S*")  # an update of the same release
_HEADER: Final = re.compile(r"\A(//.*\n)*")  # for readers: names target and knobs


def cubin_of(source: str, arch: str) -> tuple[bytes, dict[str, int]]:
    """The cubin of a source for an architecture, and the resources of its kernels.

    It is taken from the cache if it is there, and kept there.

    Raises:
        CodegenError: a compiler rejects the source; the message includes its output.
        TargetError: a compiler is missing.
    """
    code, how = _HEADER.sub("", source), " ".join(toolchain.OPTIONS)
    compilers = _BUILD.sub("", toolchain.versions())
    key = cache.digest_of("cubin", compilers, how, arch, code)
    known = cache.load(key)
    if known is not None:
        return known.blobs["cubin"], dict(known.header["resources"])
    cubin, resources = toolchain.whole_cubin_of(toolchain.ptx_of(source, arch), arch)
    cache.save(key, cache.Entry({"resources": resources}, {"cubin": cubin}))
    return cubin, resources
