"""Which of several compilers are taken."""

from pathlib import Path

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
    remembered = toolchain._tool, toolchain._library, toolchain._nvrtc
    for each in remembered:
        each.cache_clear()
    yield found
    for each in remembered:
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


def test_of_a_toolkit_only_shared_objects_are_loaded(folders, monkeypatch):
    asked, _ = folders
    for name in (
        "libnvrtc.so.13",
        "libnvrtc.alt.so.13",
        "libnvrtc_static.a",
        "libnvrtc-builtins.so.13.0",
        "libnvrtc-builtins.alt.so.13.0",
        "libnvrtc-builtins_static.a",
        "libnvrtc-builtins.alt_static.a",
    ):
        (asked / "lib" / name).touch()
    loaded = []
    monkeypatch.setattr(toolchain.ctypes, "CDLL", lambda p: loaded.append(Path(p).name))
    toolchain._nvrtc()
    assert loaded == ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"]


def test_nvrtc_is_taken_with_a_ptxas_of_its_own(folders):
    asked, pypi = folders
    library(asked)  # as PyTorch brings it, without ptxas
    library(pypi)
    tool(pypi, "ptxas")
    assert toolchain._library().is_relative_to(pypi)


def test_a_toolkit_on_the_path_is_looked_at(tmp_path, monkeypatch):
    (tmp_path / "toolkit" / "bin").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    tool(tmp_path / "toolkit", "nvcc")
    (tmp_path / "bin" / "nvcc").symlink_to(tmp_path / "toolkit" / "bin" / "nvcc")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert tmp_path / "toolkit" in list(toolchain._places())
