"""The documentation is true: its code runs, prints what it shows, and is reached."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tensorlang import records
from tensorlang.cli import app as command_line
from tensorlang.cli import document

pytestmark = pytest.mark.installed

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if path.relative_to(DOCS).parts[0] not in {"reference", "operators"}
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEEDS = ("torch", "jax", "onnx")
# what is only parsed: what takes minutes, a server, a GPU, or a file that is not there
PARSED = re.compile(
    r"tune |bench |replay |--model|--storage|--serve|--probe|cuda|--target opencl"
    r"|--measure|merge|export my|export FOLDER|doctor|m\.json|targets$"
)
CHECK = doctest.OutputChecker()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page):
    return BLOCK.findall((DOCS / page).read_text("utf-8"))


@pytest.fixture
def sitting(tmp_path, monkeypatch):
    """A folder of its own, on the import path, with no records."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TENSORLANG_RECORDS", str(tmp_path / "records"))
    monkeypatch.setenv("TENSORLANG_MACHINE", "published")
    records.forget()
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) == str(tmp_path / f"{name}.py"):
            del sys.modules[name]
    records.forget()


def named(code):
    """The file that a block begins by naming."""
    first = code.partition("\n")[0]
    return first[2:] if re.fullmatch(r"# \w+\.py", first) else ""


def run_python(code, scope):
    """What a block prints."""
    said = io.StringIO()
    if name := named(code):  # a module, as commands import it
        Path(name).write_text(code)
        code = f"from {name.removesuffix('.py')} import *"
    with contextlib.redirect_stdout(said):
        exec(compile(code, "documentation", "exec"), scope)
    return said.getvalue()


def commands(text):
    """The lines that call `tlang`, without comments; continued ones joined."""
    text = re.sub(r"\$\w+", "1", re.sub(r"\\\n|\n +(?=--)", " ", text))
    for line in text.splitlines():
        words = shlex.split(line.partition("  #")[0], comments=True)
        # `srun tlang ...`, `- exec tlang ...`
        for known in (words, words[1:], words[2:]):
            if known[:1] == ["tlang"] and known[1:]:
                yield known[1:]


def check_command(words, *, run=True):
    """Parse a command, and run it if that is possible here."""
    if ">" in words:
        words = words[: words.index(">")]
    name, *rest = words
    command = command_line.loaded(name)
    inner = getattr(command, "commands", None)
    if inner is not None and rest:
        command, rest = inner[rest[0]], rest[1:]
    with document.printed():  # what --json begins ends here
        command.make_context(name, list(rest))
    if run and not PARSED.search(" ".join(words)):
        result = CliRunner().invoke(command_line.app, words)
        assert result.exit_code == 0, f"tlang {' '.join(words)}: {result.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_in_order(page, sitting):
    del sitting
    found = blocks(page)
    code = "".join(text for kind, text in found if kind == "python")
    for package in NEEDS:
        named_there = re.search(rf"\b{package}\b", code)
        if named_there and importlib.util.find_spec(package) is None:
            pytest.skip(f"there is no {package}")
    scope: dict[str, object] = {"__name__": "documentation"}
    printed = ""
    for kind, text in found:
        if kind == "python":
            printed = run_python(text, scope)
        elif kind == "text":
            assert CHECK.check_output(text, printed, FLAGS), printed
        elif kind in ("sh", "bash", "yaml"):
            for words in commands(text):
                check_command(words)


def test_the_commands_of_the_readme_are_parsed():
    for kind, text in BLOCK.findall((ROOT / "README.md").read_text("utf-8")):
        if kind == "sh":
            for words in commands(text):
                check_command(words, run=False)


def links(path):
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    for name in re.findall(r"\]\(([^)#:\s]+\.md)[)#]", text):
        yield (path.parent / name).resolve()


def test_every_link_leads_to_a_page():
    generated = DOCS / "operators"
    for path in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for target in links(path):
            assert target.exists() or target.is_relative_to(generated), (path, target)


def test_every_page_is_two_clicks_from_the_readme():
    first = set(links(ROOT / "README.md"))
    second = {target for page in first if page.exists() for target in links(page)}
    listed = {DOCS / page for page in PAGES}
    assert sorted(listed - first - second) == []
