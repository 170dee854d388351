"""What notebooks show: small fragments that fetch nothing and escape everything."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tensorlang import graph, runtime, targets
from tensorlang.ir import parse
from tensorlang.notebooks import card
from tensorlang.ops import find, nn
from tensorlang.ops.kernels import building
from tensorlang.scheduling import Schedule
from tensorlang.tuner.measurement.rounds import Ratio
from tensorlang.tuner.progress import Report
from tensorlang.tuner.workers.protocol import Candidate

pytestmark = pytest.mark.installed

VOID = ("meta", "br", "link")


class Checked(HTMLParser):
    """Reads HTML; tags must be balanced, and nothing may be fetched."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text = [], []
        self.feed(text)
        self.close()
        assert self.open == []
        assert "url(" not in text

    def handle_starttag(self, tag, attrs):
        assert not {"src", "href"} & dict(attrs).keys()
        assert tag != "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def shown(value):
    html = value._repr_html_()
    assert len(html) < 200_000
    return "".join(Checked(html).text)


@pytest.fixture
def scheduled():
    op, target = find("nn.softmax"), targets.host()
    return building.default(op, op.workload(), target, {})


def test_a_schedule_has_its_steps_and_what_became_of_the_ir(scheduled):
    schedule, _ = scheduled
    text = shown(schedule)
    assert str(next(iter(schedule.trace))) in text
    assert "def nn_softmax" in text
    assert targets.host().device in text


def test_a_schedule_without_steps_or_target():
    assert "schedule of f" in shown(
        Schedule(parse("def f(x: f32[0], y: Out[f32[0]]):\n    pass\n"))
    )


def test_a_kernel_has_knobs_resources_and_source(scheduled):
    schedule, knobs = scheduled
    kernel = runtime.build(schedule, targets.host(), knobs=knobs.values)
    text = shown(kernel)
    assert str(kernel.signature) in text
    assert "define" in text  # LLVM IR
    assert all(name in text for name in knobs.values)
    assert all(name in text for name in kernel.resources)


def test_a_graph_and_a_network_have_their_text():
    spec = graph.TensorSpec((4, 8), "f32")
    program = graph.trace(lambda x: nn.softmax(nn.relu(x)), (spec,))
    text = shown(program)
    assert "1 x nn.relu, 1 x nn.softmax" in text
    assert str(program) in text
    assert "trainable parameters0" in shown(graph.Network(nn.relu, spec))


def test_a_search_has_times_and_failures():
    op = find("nn.softmax")
    report = Report(
        operator=op.id,
        workload=op.workload(),
        target="<script>alert(1)</script>",
        default_seconds=2e-6,
        best=Candidate("direct", {"rows": 4}),
        seconds=1e-6,
        spread=0.01,
        ratio=Ratio(2.0, 1.9, 2.1, 11),
        trials=3,
        counts={"ok": 2, "wrong": 1},
        reasons={"x[0] < 1 & \u202egnorw": 1},
    )
    text = shown(report)
    assert "<script>alert(1)</script>" in text
    assert "1 x x[0] < 1 & \u202egnorw" in text
    assert "2.00 µs" in text
    assert "2 ok, 1 wrong" in text
    same = replace(report, ratio=None, reasons={})
    assert "the default stands" in shown(same)
    assert "failures" not in shown(same)


def test_long_texts_are_cut():
    text = "".join(Checked(card("t", {}, [("a", "python", "x = 1\n" * 1000)])).text)
    assert "a, 1,000 lines" in text
    assert "… 700 more lines" in text


def test_a_card_without_facts():
    assert "".join(Checked(card("</script>", {}, [])).text) == "</script>"
