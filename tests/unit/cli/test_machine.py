"""`tlang machine`: machines shown as tables and as JSON."""

from pathlib import Path

from typer.testing import CliRunner

from tensorlang import machine
from tensorlang.cli.app import app

EMULATED = Path(__file__).parents[2] / "data/machines/sapphirerapids.json"


def test_a_table_says_where_each_number_is_from(monkeypatch):
    monkeypatch.setenv("TENSORLANG_MACHINE", "published")
    done = CliRunner().invoke(app, ["machine"])
    assert done.exit_code == 0
    assert machine.published().name in done.stdout
    assert "published" in done.stdout
    assert "measured" not in done.stdout


def test_another_machine_is_shown():
    done = CliRunner().invoke(app, ["machine", "--file", str(EMULATED)])
    assert "matrix bf16" in done.stdout
    assert "105 MiB for 56 cores, 15 ways" in done.stdout


def test_json_reads_back():
    done = CliRunner().invoke(app, ["machine", "--json", "--file", str(EMULATED)])
    assert machine.Machine.from_json(done.stdout) == machine.load(EMULATED)
