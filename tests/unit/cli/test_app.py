"""The command itself: its help, its start, its output when piped."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tensorlang import __version__
from tensorlang.cli.app import COMMANDS, app

pytestmark = pytest.mark.installed

MAIN = "from tensorlang.cli import main; main()"
HEAVY = ("numpy", "optuna", "llvmlite", "jinja2", "ml_dtypes", "tensorlang.ops")


def tlang_process(*args, **options):
    command = [sys.executable, "-P", "-c", MAIN, *args]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, **options
    )


def test_help_lists_every_command():
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.stdout for name in COMMANDS)
    assert CliRunner().invoke(app, []).stdout == result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(name):
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert f"tlang {name}" in result.stdout


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"tensorlang {__version__}\n")


def test_help_starts_without_what_it_does_not_need():
    probe = (
        "import sys; sys.argv = ['tlang', '--help']\n"
        "from tensorlang.cli import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert "Usage: tlang" in done.stdout
    loaded = set(done.stderr.split())
    assert loaded.isdisjoint(HEAVY)
    assert "typer" in loaded


def test_a_mistake_costs_exit_code_2_of_the_process():
    done = tlang_process("show", "frobnicate")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tlang: no operator is called 'frobnicate'")


def test_piped_text_is_plain():
    done = tlang_process("show", "bits")
    assert done.returncode == 0
    assert done.stdout.startswith("def random_bits(key: u32[2]")
    assert "\x1b" not in done.stdout
    assert not any(line != line.rstrip() for line in done.stdout.splitlines())


def on_a_terminal(*args, **env):
    """What a command prints on a terminal, and its exit code."""
    ours, theirs = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | env
    command = [sys.executable, "-P", "-c", MAIN, *args]
    with subprocess.Popen(command, stdout=theirs, env=env) as process:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 4096):
                text += part
        except OSError:  # Linux tells the end of a terminal so
            pass
    os.close(ours)
    return text.decode(), process.returncode


TRACE = ("show", "bits", "--stage", "trace")
WIDE = {"TERM": "xterm-256color", "COLUMNS": "120"}
NARROW = WIDE | {"COLUMNS": "80"}
COLOUR = re.compile(r"\x1b\[[\d;]*3\d[\d;]*m")  # of the foreground


def test_a_terminal_gets_colours():
    text, code = on_a_terminal(*TRACE, **WIDE)
    assert code == 0
    assert COLOUR.search(text)
    assert "split" in text


@pytest.mark.parametrize("args", [TRACE, ("ops",), ("tune", "--help")])
def test_colours_can_be_declined(args):
    text, code = on_a_terminal(*args, **WIDE, NO_COLOR="1")
    assert code == 0
    assert not COLOUR.search(text)


@pytest.mark.parametrize(
    "args", [("ops",), ("records", "ls"), ("machine",), ("targets",), ("doctor",)]
)
def test_tables_fit_a_terminal(args, tmp_path):
    text, code = on_a_terminal(*args, **NARROW, TENSORLANG_RECORDS=str(tmp_path))
    assert code == 0
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in text.splitlines()]
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []


def test_a_wide_table_is_a_paragraph_a_row():
    text, _ = on_a_terminal("ops", "bits", **NARROW)
    assert text.startswith("random.bits\r\n  aliases: bits; family: threefry;")


def test_a_closed_pipe_is_quiet():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-P", "-c", MAIN, "show", "bits"]
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert done.stderr == ""
    assert done.returncode == 141


def test_operators_of_the_current_directory(tmp_path):
    (tmp_path / "mymodule.py").write_text(
        "from tensorlang.ir import compute\n"
        "from tensorlang.ops import operator\n"
        "@operator('my.scaled_sum')\n"
        "def scaled_sum(x, y, *, scale=1.0):\n"
        "    '''x scaled, plus y.'''\n"
        "    return compute(x.shape, lambda i: scale * x[i] + y[i])\n"
    )
    name = "mymodule:scaled_sum"
    done = tlang_process("show", name, "--shape", "8,8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "def my_scaled_sum(x: f32[n0], y: f32[n0]" in done.stdout
    missing = tlang_process("show", name, cwd=tmp_path)
    assert missing.returncode == 2
    assert missing.stderr.strip().endswith("give --shape")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def (", "SyntaxError"),
        ("import sys; sys.exit(7)", "SystemExit: 7"),
    ],
)
def test_a_module_that_fails_is_one_sentence(tmp_path, body, said):
    (tmp_path / "brokenmodule.py").write_text(body)
    done = tlang_process("show", "brokenmodule:op", cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_definition_that_fails_is_one_sentence(tmp_path):
    (tmp_path / "failing.py").write_text(
        "from tensorlang.ops import operator\n"
        "@operator('my.failing')\n"
        "def failing(x):\n"
        "    return x.nothing\n"
    )
    done = tlang_process("show", "failing:failing", "--shape", "8", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot be defined: AttributeError" in done.stderr
    assert done.stderr.count("\n") == 1
