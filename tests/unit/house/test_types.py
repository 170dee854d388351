"""`Any` stays rare: it stands where no type says what a value is."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("ops", "schedules", "tensorlang", "templates", "tuner")
MOST = 6  # lines of a thousand


def test_few_lines_say_any():
    lines = [
        line
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        for line in file.read_text().splitlines()
    ]
    said = sum(bool(re.search(r"\bAny\b", line)) for line in lines)
    assert said <= MOST * len(lines) / 1000
