"""`--json`: one document on standard output, numbers as numbers, from every command."""

import json

import pytest
from typer.testing import CliRunner

from tensorlang.cli import document
from tensorlang.cli.app import COMMANDS, app, loaded
from tensorlang.cli.quantities import (
    Bytes,
    Interval,
    Names,
    Seconds,
    Settings,
    Share,
    Times,
    Unlike,
)


def every_command():
    for name in COMMANDS:
        command = loaded(name)
        for part, each in getattr(command, "commands", {"": command}).items():
            yield f"{name} {part}".strip(), each


@pytest.mark.parametrize(("name", "command"), list(every_command()))
def test_every_command_takes_it(name, command):
    assert [option for option in command.params if "--json" in option.opts], name


@pytest.mark.parametrize(
    ("cell", "text", "value"),
    [
        (Seconds(9.4e-7), "940 ns", 9.4e-7),
        (Seconds(0.00521), "5.21 ms", 0.00521),
        (Seconds(90), "90 s", 90.0),
        (Times(1.254), "1.25x", 1.254),
        (Share(0.125), "12.5%", 0.125),
        (Bytes(48 << 10), "48 KiB", 48 << 10),
        (Bytes(3 << 29), "1.5 GiB", 3 << 29),
        (Bytes(17), "17 bytes", 17),
        (Interval((0.5, 1.25)), "0.50 to 1.25", [0.5, 1.25]),
        (Names(("a", "b")), "a, b", ["a", "b"]),
        (Names(()), "-", []),
        (Settings({"lanes": 8}), "lanes=8", {"lanes": 8}),
        (Unlike("none yet", None), "none yet", None),
        (float("nan"), "nan", None),
        (float("inf"), "inf", None),
    ],
)
def test_a_cell_is_text_for_people_and_a_number_for_programs(cell, text, value):
    assert f"{cell}" == text
    assert document.plain(cell) == value


def test_sentences_go_to_standard_error(tlang):
    records = json.loads(tlang("records", "ls", "--json").stdout)["records"]
    assert all(isinstance(record["time"], float) for record in records)
    assert {record["layer"] for record in records} == {"shipped"}
    result = tlang("targets", "--json")
    found = json.loads(result.stdout)
    assert found["llvm"]["missing"] is None
    assert "llvm: present" in result.stderr


@pytest.mark.parametrize(
    "mistake",
    [
        ["show", "frobnicate", "--json"],
        ["show", "--frobnicate", "--json"],  # what is not parsed comes first
        ["frobnicate", "--json"],
        ["records", "explain", "frobnicate", "--json"],
        ["explore", "dense", "--json"],
    ],
)
def test_a_mistake_is_said_in_the_document(tlang, mistake):
    result = tlang(*mistake)
    found = json.loads(result.stdout)
    assert result.exit_code == 2
    assert found.keys() == {"error"}
    assert f"tlang: {found['error']}\n" == result.stderr


def test_nothing_found_is_a_document_too(tlang, tmp_path):
    result = tlang("studies", "ls", "--storage", f"sqlite:///{tmp_path}/s.db", "--json")
    assert isinstance(json.loads(result.stdout), dict)


def test_one_command_does_not_leave_it_to_the_next(tlang):
    assert tlang("records", "pin", "--json").stdout.startswith("{")
    assert tlang("records", "pin").stdout.startswith("no pins")


def test_the_help_of_a_command_does_not_ask_for_it():
    result = CliRunner().invoke(app, ["ops", "--json", "--help"])
    assert "Usage: tlang ops" in result.stdout
