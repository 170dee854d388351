"""Record files, broken or changed: `tlang records` refuses them by a typed error.

What it takes in instead reads back from where it files it.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tensorlang_test_programs.corruption import changed, corrupted
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.fuzzing import Fuzzer

from tensorlang import record_files, records, targets
from tensorlang.cli.app import TRACEBACK_VARIABLE, app
from tensorlang.ir.digest import digest
from tensorlang.ops import find
from tensorlang.ops.kernels import building
from tensorlang.record_files import FORMAT, Record


@cache
def _bases() -> list[Record]:
    """The shipped records, as if they were of this machine."""
    files = records.all_files(records.shipped_folder())
    return [_own(record) for path in files for record in record_files.read(path)]


def _own(record: Record) -> Record:
    here = targets.host()
    own = replace(
        record, target=here.fingerprint, architecture=records.architecture(here)
    )
    op, workload = find(own.workload.operator), own.workload
    target = here.with_threads(workload.threads)
    schedule, knobs = building.default(op, workload, target, {})
    settings = tuple(sorted(knobs.values.items()))
    return replace(own, knobs=settings, ir=digest(schedule.function))


@st.composite
def _cases(draw: Draw) -> bytes:
    """The bytes of a file of records."""
    held = draw(st.lists(st.sampled_from(_bases()), min_size=1, max_size=3))
    tree: Any = {"format": FORMAT, "records": [record.to_json() for record in held]}
    for _ in range(draw(st.integers(0, 3))):
        tree = changed(draw, tree)
        if not tree:
            break
    data = json.dumps(tree).encode()
    return corrupted(draw, data) if draw(st.integers(0, 4)) == 4 else data


def check(data: bytes) -> Iterable[str]:
    """Merge, list, export, verify and look up; read what was filed.

    Raises:
        AssertionError: what was filed does not read back, or is there twice.
    """
    with tempfile.TemporaryDirectory() as folder, _user(Path(folder) / "user") as user:
        given = Path(folder) / "given.json"
        given.write_bytes(data)
        merged = _tlang("merge", str(given))
        found = [record_files.read(path) for path in records.all_files(user)]
        if not found:
            return [f"merge: {merged}"]
        for filed in found:
            assert len({record.workload for record in filed}) == len(filed), filed
        assert _tlang("ls") == _tlang("export", f"{folder}/out") == 0
        for record in (record for filed in found for record in filed):
            records.lookup(record.workload, targets.host())
        return [f"merge: {merged}", f"verify: {_tlang('verify')}"]


@contextmanager
def _user(folder: Path) -> Iterator[Path]:
    """A folder of the user's records."""
    asked = {records.FOLDER_VARIABLE: str(folder), TRACEBACK_VARIABLE: "1"}
    before = {name: os.environ.get(name) for name in asked}
    os.environ.update(asked)
    records.forget()
    try:
        yield folder
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})
        records.forget()


def _tlang(*words: str) -> int:
    """The exit code of a command; what is no mistake of the user's is raised."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(out), redirect_stderr(out):
        try:
            app(["records", *words])
        except SystemExit as end:
            return int(end.code or 0)
    raise AssertionError("a command ends by its exit code")


def code(data: bytes) -> str:
    """Python text that files it."""
    return (
        "import os, subprocess, tempfile\n"
        f"data = {data!r}\n"
        'folder = tempfile.mkdtemp()\nopen(folder + "/given.json", "wb").write(data)\n'
        f'os.environ |= {{"{records.FOLDER_VARIABLE}": folder + "/user", '
        f'"{TRACEBACK_VARIABLE}": "1"}}\n'
        'for words in (["merge", folder + "/given.json"], ["ls"], ["verify"]):\n'
        '    print(subprocess.run(["tlang", "records", *words]).returncode)\n'
    )


def make() -> Fuzzer:
    """The fuzzer of record files."""
    return Fuzzer(_cases(), check, code, seconds=30, batch=100)
