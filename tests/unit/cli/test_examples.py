"""Every command's help has examples, and each of them is a command line that works."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from tensorlang.cli import app as command_line
from tensorlang.cli import document
from tensorlang.cli.app import app, loaded

COMMANDS = {
    f"{name} {part}".strip(): each
    for name, command in zip(
        command_line.COMMANDS, map(loaded, command_line.COMMANDS), strict=True
    )
    for part, each in getattr(command, "commands", {"": command}).items()
}
# those that need a machine, a file or time are only parsed
RUN = re.compile(
    r"tlang (ops|targets|machine$|doctor|studies ls|records (ls|pin$))"
    r"|tlang (show|records explain) (?!.*--(measure|target))"
)


def examples():
    for name, command in COMMANDS.items():
        lines = re.findall(r"^ +(tlang .+)$", command.help, re.MULTILINE)
        yield from ((name, line) for line in lines or [""])


@pytest.mark.parametrize(("name", "line"), list(examples()))
def test_examples_are_command_lines(name, line, tlang, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert line, f"tlang {name} --help has no example"
    assert len(line) <= 74, "it does not fit the help at 80 columns"
    words = shlex.split(line.partition(" > ")[0])
    assert line.startswith(f"tlang {name}")
    own = words[1 + len(name.split()) :]
    with document.printed():  # what --json begins ends here
        COMMANDS[name].make_context(name, own)
    if RUN.match(line) and "postgresql" not in line:
        result = tlang(*words[1:])
        assert result.exit_code == 0, result.stderr


def test_the_help_of_a_command_fits(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("", "records", "studies", *COMMANDS):
        said = CliRunner().invoke(app, [*name.split(), "--help"]).stdout
        assert "Examples:" in said
        assert "\n     tlang " in said, "its examples are indented"
        assert max(map(len, said.splitlines())) <= 80


def test_paragraphs_of_help_flow():
    said = loaded("machine").help
    assert "until they are measured: by --probe" in said
