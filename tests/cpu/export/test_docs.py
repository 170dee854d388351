"""The blocks of docs/export.md run in order, in one folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tensorlang.runtime.cuda import toolchain

PAGE = Path(__file__).parents[3] / "docs" / "export.md"
TOOLS = ("cc", "cmake", "aarch64-linux-gnu-gcc")
MISSING = [tool for tool in TOOLS if not shutil.which(tool)]
MISSING += [toolchain.missing()] if toolchain.missing() else []


@pytest.mark.skipif(bool(MISSING), reason=f"not here: {', '.join(MISSING)}")
def test_every_block_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names = {}
    blocks = re.findall(
        r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert [kind for kind, _ in blocks].count("sh") == 6
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), names)
        elif kind == "c":
            (tmp_path / re.match(r"/\* (\S+) \*/", text)[1]).write_text(text)
        else:
            command = ["bash", "-e", "-c", text]
            subprocess.run(command, check=True, env=os.environ | {"PATH": path})
    program = subprocess.check_output([tmp_path / "program"], text=True)
    assert program == "the call succeeded, on native\n"
