"""Which of several compilers are taken."""

import pytest

from tensorlang.runtime.cuda import toolchain


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A toolkit that is asked for, and one from PyPI; no compiler in either."""
    found = tmp_path / "asked", tmp_path / "pypi"
    for folder in found:
        (folder / "bin").mkdir(parents=True)
        (folder / "lib").mkdir()
    monkeypatch.setattr(toolchain, "_folders", lambda: found)
    monkeypatch.setenv("PATH", "")
    for each in (toolchain._tool, toolchain._library):
        each.cache_clear()
    yield found
    for each in (toolchain._tool, toolchain._library):
        each.cache_clear()


def tool(folder, name):
    path = folder / "bin" / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def library(folder):
    (folder / "lib" / "libnvrtc.so.13").touch()


def test_ptxas_is_that_of_nvrtc(folders):
    asked, pypi = folders
    tool(asked, "ptxas")  # of an older toolkit, which has no NVRTC
    newer = tool(pypi, "ptxas")
    library(pypi)
    assert toolchain._tool("ptxas") == newer


def test_what_is_asked_for_comes_first(folders):
    asked, pypi = folders
    wanted = tool(asked, "ptxas")
    tool(pypi, "ptxas")
    library(asked)
    library(pypi)
    assert toolchain._tool("ptxas") == wanted
    only = tool(pypi, "nvdisasm")
    assert toolchain._tool("nvdisasm") == only
