r"""The on-disk cache of object code and metadata: one file per entry.

It is in the user's cache directory, or in `TENSORLANG_CACHE`. Its contents are
executed, so the directory must belong to the user and be closed to others (mode 700);
otherwise caching is off, with one warning. An entry is

    tensorlang cache 1 <sha256 of the rest>\n <header: JSON>\n <blobs>

written to a temporary file and renamed, so concurrent writers are safe. A truncated,
altered or foreign file is ignored with a warning, and rebuilt.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
import sys
import threading
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorlang import lazy
from tensorlang.frozen import frozen

with lazy.modules(__name__):  # only for the default
    import platformdirs


VARIABLE: Final = "TENSORLANG_CACHE"
LIMIT_BYTES: Final = 1 << 30
LIMIT_ENTRY: Final = 1 << 27
LIMIT_NOTES: Final = 1 << 14
LIMIT_NOTES_FILE: Final = 1 << 24  # bytes, with lines that are not read
_MAGIC: Final = b"tensorlang cache 1 "
_SUFFIX: Final = ".tlc"
# packages that determine the code generated for a definition
_GENERATORS: Final = (
    "ir", "scheduling", "codegen", "runtime", "templates", "schedules", "ops",
)  # fmt: skip


@frozen
class Entry:
    """A cache entry: a JSON-serialisable header and named blobs."""

    header: Mapping[str, Any]
    blobs: Mapping[str, bytes]


def key_of(*parts: str) -> str:
    """The key of something made from these parts by the current code versions."""
    return digest_of(*parts, _versions())


def digest_of(*parts: str) -> str:
    """The key of something that these parts determine, on any machine."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def load(key: str) -> Entry | None:
    """The entry of this key; None if missing or unusable."""
    folder = directory()
    if folder is None:
        return None
    path = folder / (key + _SUFFIX)
    try:
        return _decode(key, _bounded(path))
    except OSError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        _warn_of(path, error)
        return None


def _warn_of(path: Path, error: Exception) -> None:
    warnings.warn(
        f"cache file {path} is not usable ({error}); it is ignored and rebuilt",
        RuntimeWarning,
        stacklevel=3,
    )


def has(key: str) -> bool:
    """Whether there is an entry of this key, usable or not."""
    folder = directory()
    return folder is not None and (folder / (key + _SUFFIX)).exists()


def notes() -> dict[str, str]:
    """Short texts by key, which `note` adds to: those of the current code versions."""
    folder = directory()
    return {} if folder is None else _notes_in(folder)


def note(key: str, text: str) -> None:
    """Add a line of text to the notes, unless there are too many.

    They are a file of lines, each with its checksum, to which all processes append: a
    line that was torn or altered is not read. A file that is too large is deleted by
    the next process that reads it.
    """
    folder = directory()
    if folder is None:
        return
    held = _notes_in(folder)
    if key in held or len(held) >= LIMIT_NOTES:
        return
    held[key] = text
    line = f"{key} {text}"
    path = _notes_file(folder)
    with suppress(OSError), open(path, "ab", buffering=0, opener=_opened) as file:
        file.write(f"\n{_checksum(line)} {line}".encode())  # a torn line ends there


@cache
def _notes_in(folder: Path) -> dict[str, str]:
    """The notes on disk, read once; what is no file of notes is deleted."""
    found: dict[str, str] = {}
    path = _notes_file(folder)
    with suppress(OSError):
        try:
            lines = _bounded(path, LIMIT_NOTES_FILE).decode(errors="replace")
        except ValueError as error:
            _warn_of(path, error)
            path.unlink()
            return found
        for line in lines.splitlines():
            checksum, _, rest = line.partition(" ")
            if checksum == _checksum(rest) and len(found) < LIMIT_NOTES:
                key, _, text = rest.partition(" ")
                found[key] = text
    return found


def _notes_file(folder: Path) -> Path:
    return folder / f"{key_of('notes')}.notes"


def _checksum(line: str) -> str:
    return f"{zlib.crc32(line.encode()):08x}"


def _bounded(path: Path, limit: int = LIMIT_ENTRY) -> bytes:
    """The bytes of a regular file; a pipe would block, a device would never end."""
    with open(path, "rb", opener=_opened) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        if status.st_size > limit:
            raise ValueError(f"it is larger than {limit >> 20} MiB")
        return file.read(limit)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def save(key: str, entry: Entry) -> None:
    """Write an entry; on a full or read-only disk it is silently not written."""
    folder = directory()
    if folder is None:
        return
    name = f"{key}.{os.getpid()}.{threading.get_ident()}.tmp"
    temporary = folder / name
    _prune_once(folder)
    try:
        temporary.write_bytes(_encode(key, entry))
        temporary.replace(folder / (key + _SUFFIX))
    except OSError:
        temporary.unlink(missing_ok=True)


def directory() -> Path | None:
    """The cache directory, created if missing; None if caching is off."""
    return _usable(os.environ.get(VARIABLE) or None)


@cache
def _usable(asked: str | None) -> Path | None:
    path = Path(asked).expanduser() if asked else _default()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = _refusal(path)
    except OSError as error:
        reason = str(error)
    if reason:
        warnings.warn(
            f"kernels are not cached: {path} {reason}; "
            f"repair it or set {VARIABLE} to a folder of your own",
            RuntimeWarning,
            stacklevel=4,
        )
        return None
    return path


def _default() -> Path:
    return platformdirs.user_cache_path("tensorlang", appauthor=False) / "kernels"


def _refusal(path: Path) -> str:
    """Why code from this folder must not be run; empty if it may."""
    if not hasattr(os, "getuid"):
        return ""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        return "is no directory"
    if status.st_uid != os.getuid():
        return f"belongs to user {status.st_uid}, not to you (user {os.getuid()})"
    if status.st_mode & 0o077:
        return f"is open to others (mode {status.st_mode & 0o777:o}, not 700)"
    return ""


@cache
def _prune_once(folder: Path) -> None:
    """Prune at the first write of a process; readers never prune."""
    with suppress(OSError):  # another process may be pruning
        _prune(folder)


def _prune(folder: Path) -> None:
    """Delete the oldest files until half the limit is left."""
    with os.scandir(folder) as entries:
        files = [(e.stat().st_mtime, e.stat().st_size, e.path) for e in entries]
    total = sum(size for _, size, _ in files)
    if total <= LIMIT_BYTES:
        return
    for _, size, path in sorted(files):
        Path(path).unlink(missing_ok=True)
        total -= size
        if total <= LIMIT_BYTES // 2:
            break


def _encode(key: str, entry: Entry) -> bytes:
    sizes = {name: len(blob) for name, blob in entry.blobs.items()}
    header = json.dumps({"key": key, "sizes": sizes, "header": entry.header})
    rest = b"\n".join([header.encode(), b"".join(entry.blobs.values())])
    return _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def _decode(key: str, data: bytes) -> Entry:
    """Parse a file's bytes; ValueError says what is wrong with them."""
    first, _, rest = data.partition(b"\n")
    if not first.startswith(_MAGIC):
        raise ValueError("it is not a cache entry")
    if hashlib.sha256(rest).hexdigest().encode() != first[len(_MAGIC) :]:
        raise ValueError("its checksum does not match: it is truncated or was altered")
    line, _, payload = rest.partition(b"\n")
    head = json.loads(line)
    if head["key"] != key:
        raise ValueError("it belongs to another key")
    blobs, at = {}, 0
    for name, size in head["sizes"].items():
        blobs[name] = payload[at : at + size]
        at += size
    return Entry(head["header"], blobs)


@cache
def _versions() -> str:
    """Python, NumPy, the platform, and a stamp of the code generator's sources."""
    system = f"{sys.platform} {platform.machine()}"
    flags = getattr(sys, "abiflags", "")
    python = f"{sys.implementation.cache_tag}{flags} {system}"
    return f"{python} numpy {np.__version__} generator {_stamp()}"


def _stamp() -> str:
    """Hash of the generator's file sizes and times: editing one invalidates entries."""
    rows: list[str] = []
    for package in _GENERATORS:
        spec = find_spec(f"tensorlang.{package}")
        if spec and spec.origin:
            rows.extend(_stamps(str(Path(spec.origin).parent)))
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()


def _stamps(folder: str) -> Iterator[str]:
    """A row for each source file below a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".j2")):
                status = entry.stat()
                yield f"{entry.path} {status.st_size} {status.st_mtime_ns}"
            elif entry.is_dir():
                yield from _stamps(entry.path)
