"""Trials that a storage could not take: kept in a file, delivered when it can.

A database may be away for a minute, or its disk full; neither is a reason to lose a
trial or to end a run. The file is beside the user's data; where that disk is full, too,
it is in the system's temporary folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensorlang import lazy
from tensorlang.atomic_files import write_text
from tensorlang.errors import TuningError
from tensorlang.tuner.storage.rows import Row

if TYPE_CHECKING:
    import filelock
    import platformdirs
else:  # slow to import
    filelock = lazy.module("filelock")
    platformdirs = lazy.module("platformdirs")

_FOLDER: Final = "undelivered"
_WAIT: Final = 5  # seconds for another process that reads or writes the file


def _files(url: str, study: str) -> list[Path]:
    """Where trials may be kept, the preferred file first."""
    name = hashlib.sha256(f"{url}\n{study}".encode()).hexdigest()[:32]
    user = getattr(os, "getuid", lambda: "user")()
    folders = (
        platformdirs.user_data_path("tensorlang") / _FOLDER,
        Path(tempfile.gettempdir()) / f"tensorlang-{_FOLDER}-{user}",
    )
    return [folder / f"{name}.jsonl" for folder in folders]


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a file of the user's own.

    Raises:
        OSError: the folder cannot be made, or is another user's.
        filelock.Timeout: another process holds it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and path.parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{path.parent} is another user's")
    with filelock.FileLock(f"{path}.lock", timeout=_WAIT):
        yield


def keep(url: str, study: str, rows: Iterable[Row]) -> Path | None:
    """Add trials to a spool file; None if no folder takes one."""
    lines = [row.to_json() for row in rows]
    for path in _files(url, study):
        with contextlib.suppress(OSError, filelock.Timeout), _alone(path):
            held = path.read_text().splitlines() if path.exists() else []
            write_text(path, "\n".join([*held, *lines, ""]))
            return path
    return None


def take(url: str, study: str) -> list[Row]:
    """Remove and return the trials that were kept, oldest first."""
    found: list[Row] = []
    for path in filter(Path.exists, _files(url, study)):
        with contextlib.suppress(OSError, filelock.Timeout), _alone(path):
            lines = path.read_text().splitlines()
            path.unlink()
            for line in lines:
                with contextlib.suppress(TuningError):
                    found.append(Row.from_json(line))
    return found
