"""Whether the disk takes files: what fails for want of space is nobody's mistake."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Final

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SPARE: Final = 1 << 16  # bytes that a disk that is not full takes


def is_full(problem: BaseException | None) -> bool:
    """Whether something failed for want of space."""
    return isinstance(problem, OSError) and problem.errno in _FULL


def refusal(folder: Path | None = None) -> OSError | None:
    """Why a folder, or that of temporary files, takes no file; None if it takes one."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_SPARE))
    except OSError as problem:
        return problem
    return None
