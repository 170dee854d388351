"""A full disk is told from other problems, and a folder that takes files has none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tensorlang.tuner import disk_space


def test_a_folder_that_takes_files_has_no_problem(tmp_path: Path) -> None:
    assert disk_space.refusal(tmp_path) is None
    assert disk_space.refusal() is None
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_missing_is_not_full(tmp_path: Path) -> None:
    refused = disk_space.refusal(tmp_path / "missing")
    assert refused is not None
    assert refused.errno == errno.ENOENT
    assert not disk_space.is_full(refused)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_what_fails_for_want_of_space(code: int) -> None:
    assert disk_space.is_full(OSError(code, os.strerror(code)))
    assert not disk_space.is_full(RuntimeError("No space left on device"))
    assert not disk_space.is_full(None)
