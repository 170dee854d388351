"""What a storage could not take: trials kept in files, delivered when it can.

A database may be away for a minute, or its disk full; neither is a reason to lose a
trial or to end a run. The files are beside the user's data; where that disk is full,
too, they are in the system's temporary folder.

A file is removed after its trial was stored. What is stored and not removed, because
its tuner was killed in between, is recognised by the storage when it comes again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tensorlang import lazy
from tensorlang.atomic_files import write_text
from tensorlang.errors import TuningError
from tensorlang.tuner.storage import databases
from tensorlang.tuner.storage.rows import Row

with lazy.modules(__name__):  # slow to import
    import platformdirs

_FOLDER: Final = "undelivered"


@dataclass(slots=True)
class Told:
    """A trial on its way to a storage."""

    row: Row  # trial
    after: int  # a key in the storage: if the trial is there, its key is greater
    file: Path | None = None  # where it is kept, if it is
    tried: bool = False  # whether the storage may have it, without an answer


def folders() -> Iterator[Path]:
    """Where something may be kept for later, the preferred folder first."""
    user = getattr(os, "getuid", lambda: "user")()
    yield platformdirs.user_data_path("tensorlang") / _FOLDER
    with contextlib.suppress(OSError):  # no folder takes temporary files
        yield Path(tempfile.gettempdir()) / f"tensorlang-{_FOLDER}-{user}"


def _own(folder: Path) -> bool:
    """Whether nobody else can have written to a folder."""
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()


def write(place: str, text: str) -> Path | None:
    """Write a file at a place below the folders; None if none of them takes it."""
    for folder in folders():
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _own(folder):
                write_text(folder / place, text)
                return folder / place
    return None


def files(place: str) -> Iterator[Path]:
    """The files in a folder below the folders, oldest first."""
    for folder in folders():
        with contextlib.suppress(OSError):
            if _own(folder):
                yield from sorted((folder / place).glob("*.json"))


def _place(url: str, study: str) -> str:
    named = f"{databases.resolved(url)}\n{study}"
    return hashlib.sha256(named.encode()).hexdigest()[:32]


def keep(url: str, study: str, told: Told) -> bool:
    """Keep a trial in a file; whether a folder takes it."""
    name = f"{time.time_ns():020}-{uuid.uuid4().hex}.json"
    text = json.dumps([told.after, told.row.to_json()])
    return write(f"{_place(url, study)}/{name}", text) is not None


def kept(url: str, study: str) -> list[Told]:
    """The trials that are kept for a study, oldest first."""
    found = []
    for file in files(_place(url, study)):
        with contextlib.suppress(OSError, ValueError, TypeError, TuningError):
            after, row = json.loads(file.read_text("utf-8"))
            found.append(Told(Row.from_json(row), int(after), file, tried=True))
    return found
