"""What the site is made of; `make docs` builds it, and fails for what is unknown."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from tensorlang.ops import find, operators

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PACKAGES = [f"tensorlang.ops.{name}" for name in ("math", "nn", "optim", "random")]


@pytest.fixture(autouse=True)
def extension(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "extension")


def facts(name):
    import operator_pages

    return operator_pages.facts(name)


def test_a_page_tells_what_an_operator_is():
    text = facts("random.uniform")
    assert text.startswith(":id: ``random.uniform``\n:aliases: uniform\n")
    assert ":element types: f16; bf16; f32; f64\n" in text
    assert ":attributes: ``dtype=f32`` " in text
    assert "   * - ``direct``\n     - exact: equal bits\n" in text
    assert "   * - bytes written\n     - ``n0 * 4``\n" in text
    assert "   * - ``lanes``\n     - one of 8, 16," in text
    assert "    def random_uniform(key: u32[2]" in text


def test_one_table_has_the_element_types_of_every_operator():
    from operator_pages import element_types

    rows = dict(re.findall(r"^\| `(.+)` \| (.+) \|$", element_types(), re.MULTILINE))
    assert rows.keys() == {op.id for op in operators() if op.in_library}
    assert rows["nn.dense_int4"] == "f32; bf16; f16"
    assert rows["nn.dequantize"] == "u8 with other attributes; i8 to f32"
    assert "f32 to bool" in rows["math.equal"]


def test_a_page_tells_tolerances_and_schedules_of_every_algorithm():
    text = facts("nn.conv2d")
    listed = re.findall(r"^   \* - ``(\w+)``\n     - (.*)$", text, re.MULTILINE)
    assert {name for name, _ in listed} >= set(find("nn.conv2d").algorithms)
    assert dict(listed)["direct"].startswith("sums in any order: (16 + 4 sqrt")
    for name in find("nn.conv2d").algorithms:
        assert re.search(rf"^(Algorithm )?``{name}``[ ,]", text, re.MULTILINE)


def test_a_page_shows_measured_kernels_where_there_are_some():
    from roofline import measured

    drawn = '   from roofline import draw\n   draw("nn.dense")\n'
    text = facts("nn.dense")
    assert drawn in text
    assert ".. plot::" not in facts("math.add_grad")
    counted, points = measured("nn.dense")
    assert counted == "floating"
    assert f"   * - {points[0].work}\n     - {points[0].run['threads']}\n" in text
    for point in points:
        limits = point.run["limits"]
        assert 0 < point.rate * 1e9 < 3 * limits["fma"]  # bf16: twice


def test_a_picture_has_a_roof_a_number_of_threads_and_a_mark_a_kernel():
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is missing")
    import roofline

    pyplot.switch_backend("svg")
    roofline.draw("random.bits")
    (axes,) = pyplot.gcf().axes
    _, points = roofline.measured("random.bits")
    threads = {point.run["threads"] for point in points}
    assert len(axes.lines) == len(threads) + len(points)
    assert axes.get_xlabel() == "integer operations per byte moved"
    pyplot.close()


@pytest.mark.parametrize("package", PACKAGES)
def test_public_operators_are_found_by_where_they_stand(package):
    from operator_pages import operator, public

    module = importlib.import_module(package)
    names = public(package)
    assert set(names) >= set(getattr(module, "__all__", ())) - {"schedules"}
    for name in names:
        held = getattr(module, name)
        assert held.__doc__, f"{package}.{name} has no docstring"
        found = operator(f"{package}.{name}")
        assert (found is held) if hasattr(held, "algorithms") else found is None


def test_pages_show_what_packages_take_from_their_modules():
    for page in sorted((DOCS / "reference").glob("*.md")):
        blocks = re.findall(
            r"^\.\. automodule:: (\S+)\n((?:   .*\n)*)", page.read_text(), re.MULTILINE
        )
        for name, options in blocks:
            if importlib.util.find_spec(name).submodule_search_locations is None:
                continue  # a module, perhaps of a framework that is missing
            module = importlib.import_module(name)
            held = (getattr(module, each) for each in dir(module) if each[0] != "_")
            own = any(getattr(each, "__module__", "") == name for each in held)
            shown = own or hasattr(module, "__all__") or ":imported-members:" in options
            assert shown, f"{page.name} shows nothing of {name}"


def test_types_tell_what_comes_out():
    from operator_pages import conversions

    assert conversions(find("random.bernoulli")) == ("f32 to bool",)
    assert conversions(find("nn.relu"))[:2] == ("f32", "bf16")
    assert "i8 to i64" in conversions(find("math.cumsum"))


def test_every_command_is_documented():
    from command_line import commands

    from tensorlang.cli.app import COMMANDS

    text = commands()
    for name in COMMANDS:
        assert f"\n## `tlang {name}`\n" in f"\n{text}"
    assert "\n### `tlang records explain`\n" in text
    assert "\n* `--budget TIME`: " in text
    assert "\nWith `--compile-only` nothing is run" in text


def test_indented_code_is_a_literal_block():
    from docstrings import literal_blocks

    before, after = "A sum:\n\n", "    y = x\n\n      + 1\n\nOf:\n    x: An array.\n"
    made = list(literal_blocks((before + after).split("\n")))
    assert made == (before + "::\n\n" + after).split("\n")


@pytest.mark.parametrize("file", ["README.md", "CHANGELOG.md"])
def test_links_outside_of_the_site_lead_somewhere(file):
    targets = re.findall(r"\]\(([^)#:]+)[)#]", (ROOT / file).read_text("utf-8"))
    assert [name for name in targets if not (ROOT / name).exists()] == []
