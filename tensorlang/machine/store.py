"""Measured machines in the user's data, one file per kind of machine.

    <user data>/tensorlang/machines/<fingerprint>.json

Files are replaced atomically. One that is broken or of another machine is ignored with
a warning, and rewritten by the next probe. `TENSORLANG_MACHINE` names a file to use
instead, or is `published` to use what the system publishes; neither is ever probed.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Final

from tensorlang import lazy
from tensorlang.atomic_files import write_text
from tensorlang.errors import RecordError
from tensorlang.machine.description import Machine
from tensorlang.machine.system import published
from tensorlang.targets import Target, host

with lazy.modules(__name__):  # keeps importing light
    import platformdirs


VARIABLE: Final = "TENSORLANG_MACHINE"
PUBLISHED: Final = "published"
_MOST_BYTES: Final = 1 << 20


def folder() -> Path:
    """The folder of measured machines."""
    return platformdirs.user_data_path("tensorlang") / "machines"


def path_of(name: str) -> Path:
    """The file of a machine."""
    return folder() / f"{name}.json"


def load(path: Path | str) -> Machine:
    """The machine that a file describes.

    Raises:
        RecordError: it describes none; the message names the file.
        OSError: it cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES)
    try:
        return Machine.from_json(data.decode())
    except (RecordError, UnicodeDecodeError) as problem:
        raise RecordError(f"machine file {path}: {problem}") from None


def kept() -> Machine | None:
    """This machine as an earlier probe measured it; broken files give a warning."""
    path = path_of(host().fingerprint)
    try:
        found = load(path)
    except FileNotFoundError:
        return None
    except (RecordError, OSError) as problem:
        warnings.warn(
            f"{problem} (ignored; tlang machine --probe rewrites it)", stacklevel=2
        )
        return None
    if found.name != host().fingerprint:
        warnings.warn(f"machine file {path} is of {found.name}: ignored", stacklevel=2)
        return None
    return found


def keep(machine: Machine) -> Path:
    """Write a machine's file atomically; returns its path."""
    path = path_of(machine.name)
    write_text(path, machine.to_json())
    _here.cache_clear()
    return path


def may_probe() -> bool:
    """Whether `TENSORLANG_MACHINE` leaves it to a probe to describe this machine."""
    return not os.environ.get(VARIABLE)


def here() -> Machine:
    """This machine: as measured, else as published. Nothing is measured by this call.

    Raises:
        RecordError: `TENSORLANG_MACHINE` names a file that describes no machine.
        OSError: that file cannot be read.
    """
    return _here(os.environ.get(VARIABLE) or "", host().fingerprint)


def of(target: Target) -> Machine:
    """The machine of a CPU target: this one, or what is published for another CPU.

    Raises:
        RecordError, OSError: as for `here`.
    """
    own = target.kind != "llvm" or target.fingerprint == host().fingerprint
    return here() if own or not may_probe() else _published(target)


def edition() -> str:
    """What tells kernels for this description of the machine from others.

    Empty if it is as published.
    """
    found = here()
    if not found.measured and not os.environ.get(VARIABLE):
        return ""
    return hashlib.sha256(found.to_json().encode()).hexdigest()[:16]


_published: Final = cache(published)


@cache
def _here(given: str, name: str) -> Machine:
    del name  # part of the key: the host may be emulated
    if given == PUBLISHED:
        return published()
    return load(given) if given else kept() or published()
