"""Changed and broken record files; `make fuzz WHAT=records COUNT=10000` tries many."""

from __future__ import annotations

from types import ModuleType


def test_files_are_filed_or_refused(programs: ModuleType) -> None:
    seen = programs.fuzzing.search(programs.fuzzers.fuzzer("records"), 0, 40)
    assert seen["merge: 0"] > 5
    assert seen["merge: 2"] > 5
