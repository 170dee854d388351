"""Bytecode cache of templates, next to that of modules.

The bytecode of `llvm.ll.j2` is in `__pycache__/llvm.ll.cpython-311.j2c`, or under
`PYTHONPYCACHEPREFIX`. It is trusted like a `.pyc` file: whoever can write it can also
change the template. `python -m tensorlang.templates` compiles all templates.
"""

from __future__ import annotations

import marshal
import os
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket, bc_magic

_SUFFIX = ".j2c"


class PycacheBytecode(BytecodeCache):
    """Stores bytecode where Python's import system would, if it can."""

    def __init__(self, *, write: bool) -> None:
        self.write = write

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Path of a template's bytecode file."""
        return str(Path(cache_from_source(filename or name)).with_suffix(_SUFFIX))

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read the bytecode if it matches the source, Jinja and Python."""
        head = _head(bucket)
        try:
            data = Path(bucket.key).read_bytes()
            code = marshal.loads(data[len(head) :]) if data.startswith(head) else None  # noqa: S302 - as Python does
        except (OSError, ValueError, EOFError, TypeError):
            return
        bucket.code = code if isinstance(code, CodeType) else None

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write the bytecode atomically."""
        if not self.write or bucket.code is None:
            return
        place = Path(bucket.key)
        spare = place.with_suffix(f".{os.getpid()}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            spare.write_bytes(_head(bucket) + marshal.dumps(bucket.code))
            spare.replace(place)
        except OSError:
            spare.unlink(missing_ok=True)


def _head(bucket: Bucket) -> bytes:
    return bc_magic + bucket.checksum.encode()
