"""Two configurations on one page."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tensorlang.cli.app import app
from tensorlang.explorer.page import differences
from tensorlang.explorer.stages import stages_of


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A function that writes a page of two configurations, and returns its text."""

    def write(*args):
        file = tmp_path_factory.mktemp("compare") / "page.html"
        result = CliRunner().invoke(app, ["explore", *args, "-o", str(file)])
        return result, file.read_text("utf-8") if file.exists() else ""

    return write


def test_a_page_shows_the_second_and_how_it_differs(written):
    result, text = written("bits", "--compare", "default", "lanes=8")
    assert result.exit_code == 0
    assert result.stdout.startswith("written to ")
    for stage in ("definition", "scheduled", "lowered", "source", "asm"):
        assert f'id="compare:{stage}"' in text
    facts = text.partition('<section id="facts"')[2]
    row = facts.partition('<th scope="row">lanes</th>')[2].partition("</tr>")[0]
    assert row.count("<td>") == 2
    assert "<td>8</td>" in row
    assert "Definition −0 +0" in text
    assert "Scheduled −0 +0" not in text


def test_a_configuration_compared_with_itself_is_said_to_be_one(written):
    result, text = written("bits", "--compare", "lanes=8", "lanes=8")
    first, last = result.stdout.splitlines()
    assert first == "lanes=8 and lanes=8 are one configuration here"
    assert last.startswith("written to ")
    assert 'id="compare:' not in text


def test_what_is_equal_has_no_differences(subject):
    found = subject("softmax", "8x100")
    stages = stages_of(found.definition, found.schedule, found.kernel)
    assert [rows for _, rows in differences(stages, stages)] == [[]] * len(stages)


def test_the_lines_that_differ_give_the_second_text(subject):
    few, many = subject("softmax", "8x100"), subject("softmax", "8x128")
    before, stages = (
        stages_of(each.definition, each.schedule, each.kernel) for each in (few, many)
    )
    for stage, rows in differences(before, stages):
        added = [row.html.striptags() for row in rows if row.kind == "+"]
        lines = [" ".join(line.split()) for line in stage.lines]
        assert added
        assert set(added) <= set(lines)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("default", "nonsense"), "'nonsense' is no configuration"),
        (("default", "colour=3"), "colour"),
        (("default", "fast(lanes=8)"), "has the algorithms"),
    ],
)
def test_a_configuration_that_there_is_not_is_one_sentence(written, texts, said):
    result, text = written("bits", "--compare", *texts)
    assert (result.exit_code, text) == (2, "")
    assert said in " ".join(result.output.split())
