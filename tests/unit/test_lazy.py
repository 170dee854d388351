"""Imports on first use: nothing before, ordinary imports elsewhere and in threads."""

from __future__ import annotations

import builtins
import gc
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tensorlang import lazy
from tensorlang.gc_pause import gc_paused

FILES = {
    "lazy_package/__init__.py": """
from tensorlang import lazy
with lazy.names(__name__):
    from lazy_package import inner as inner
    from lazy_package.inner import called as called_inside
    from lazy_package.inner import missing as missing
    from lazy_package.same import same as same
""",
    "lazy_package/inner.py": "value = 1\ndef called():\n    return 2\n",
    "lazy_package/same.py": "def same():\n    return 3\n",
    "lazy_user.py": """
from tensorlang import lazy
with lazy.modules(__name__):
    import lazy_package as whole
    from lazy_package import inner, inner as renamed
import json
""",
    "lazy_plain.py": "import json\n",
    "lazy_rest.py": "import gc\ngc.disable()\n",
    "lazy_rare.py": "import gc\ngc.set_threshold(5000)\n",
}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [n for n in sys.modules if n.startswith("lazy_")]:
        del sys.modules[name]


def test_modules_are_imported_when_they_are_read():
    user = importlib.import_module("lazy_user")
    assert "lazy_package" not in sys.modules
    assert user.json is sys.modules["json"]
    assert user.renamed.value == user.inner.value == 1
    assert "lazy_package.inner" in sys.modules
    assert user.whole.called_inside() == 2


def test_names_are_imported_when_they_are_read():
    package = importlib.import_module("lazy_package")
    assert "lazy_package.inner" not in sys.modules
    assert package.called_inside() == 2
    assert package.inner is sys.modules["lazy_package.inner"]
    assert package.same() == 3  # not the module, which has the same name
    assert {"inner", "called_inside", "same"} <= set(dir(package))


def test_names_that_are_not_there_are_refused():
    package = importlib.import_module("lazy_package")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing
    with pytest.raises(ImportError, match="missing"):
        _ = package.missing


def test_other_modules_import_at_once_meanwhile():
    with lazy.modules("lazy_user"), ThreadPoolExecutor(1) as pool:
        assert importlib.import_module("lazy_package.same").same() == 3
        plain = pool.submit(importlib.import_module, "lazy_plain").result(10)
        assert plain.json is sys.modules["json"]


def test_an_error_meanwhile_restores_imports():
    usual = builtins.__import__
    with pytest.raises(ZeroDivisionError), lazy.modules(__name__):
        _ = 1 / 0
    assert builtins.__import__ is usual


@pytest.fixture
def _collector():
    was, thresholds = gc.isenabled(), gc.get_threshold()
    gc.enable()
    gc.set_threshold(700)
    yield
    gc.set_threshold(*thresholds)
    (gc.enable if was else gc.disable)()


@pytest.mark.usefixtures("_collector")
def test_what_an_import_asks_of_the_collector_lasts():
    lazy.imported("lazy_rest")
    assert not gc.isenabled()
    assert gc.get_threshold()[0] == 700
    lazy.imported("lazy_rare")
    assert gc.get_threshold()[0] == 5000


@pytest.mark.usefixtures("_collector")
def test_nothing_is_collected_in_pauses_which_may_overlap():
    seen: list[str] = []

    def note(phase: str, _: object) -> None:
        seen.append(phase)

    gc.callbacks.append(note)
    try:
        one, other = gc_paused(), gc_paused()
        one.__enter__()
        other.__enter__()
        assert gc.isenabled()
        kept = [[index] for index in range(5000)]
        assert not seen
        one.__exit__(None, None, None)
        other.__exit__(None, None, None)
        kept += [[index] for index in range(5000)]
        assert seen
    finally:
        gc.callbacks.remove(note)
    assert gc.get_threshold()[0] == 700
