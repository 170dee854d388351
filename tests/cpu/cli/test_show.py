"""Every stage of an operator, as text."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.cli.show import STAGES
from tensorlang.codegen.short_names import as_shown
from tensorlang.codegen.shown_schedule import simplified_schedule
from tensorlang.ir import parse, show
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Const
from tensorlang.ops import find
from tensorlang.ops.kernels import building
from tensorlang.runtime import build
from tensorlang.scheduling import Knobs


def scheduled(**knobs):
    op = find("bits")
    return building.schedule(
        op, op.workload(), targets.host(), "direct", Knobs(pinned=knobs)
    )


def read(schedule):
    return show(as_shown(simplified_schedule(schedule.function)))


def test_the_definition_parses_back(tlang):
    result = tlang("show", "bits")
    assert result.exit_code == 0
    assert parse(result.stdout) == find("bits").function(find("bits").workload())


def test_trace_and_scheduled_are_the_schedules_own(tlang):
    made = scheduled()
    assert tlang("show", "bits", "--stage", "trace").stdout == f"{made.trace}\n"
    assert tlang("show", "bits", "--stage", "scheduled").stdout == read(made)


@pytest.mark.parametrize("name", ["attention", "softmax"])
def test_scheduled_text_is_ir_that_means_the_same(tlang, name):
    text = tlang("show", name, "--stage", "scheduled").stdout
    assert show(parse(text)) == text
    asked = ("show", name, "--stage", "ir")
    definition = parse(tlang(*asked).stdout)
    rng = np.random.default_rng(0)
    sizes = {"n0": 2, "n1": 19, "n2": 21}
    sizes = {v.name: sizes[v.name] for v in definition.scalars}
    values = {v: sizes[v.name] for v in definition.scalars}
    shapes = [
        tuple(
            int(d.value) if isinstance(d, Const) else values[d] for d in p.buffer.shape
        )
        for p in definition.params
    ]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    before = [a.copy() for a in arrays]
    run(definition, *before, **sizes)
    run(parse(text), *arrays, **sizes)
    np.testing.assert_allclose(arrays[-1], before[-1], rtol=1e-4, atol=1e-5)


def test_source_and_assembly_are_the_kernels(tlang):
    kernel = build(scheduled(), "llvm")
    assert tlang("show", "bits", "--stage", "asm").stdout == kernel.asm
    source = tlang("show", "bits", "--stage", "source").stdout
    assert source.split("define", 1)[1] == kernel.source.split("define", 1)[1]


def test_lowered_text_is_ir_too(tlang):
    lowered = tlang("show", "bits", "--stage", "lowered", "--dtype", "u8").stdout
    assert "out: Out[u8[" in lowered
    assert show(parse(lowered)) == lowered


def test_knobs_are_shown_with_domain_and_value(tlang, monkeypatch):
    monkeypatch.setenv("TENSORLANG_PIN", "bits:lanes=16")
    shown = tlang("show", "bits", "--stage", "knobs").stdout
    assert "lanes = 16  # one of 8, 16," in shown
    assert "TENSORLANG_PIN fixes lanes" in shown


def test_another_configuration_is_shown(tlang):
    made = read(scheduled(lanes=8))
    asked = ("show", "bits", "--stage", "scheduled", "--knobs")
    assert tlang(*asked, "lanes=8").stdout == made != tlang(*asked, "default").stdout
    refused = tlang(*asked, "lanes=5")
    assert refused.exit_code == 2
    assert "knob 'lanes' is one of" in refused.stderr


@pytest.mark.parametrize("name", ["permutation", "categorical", "dropout", "split"])
def test_other_operators_are_shown(tlang, name):
    for stage in STAGES:
        assert tlang("show", name, "--stage", stage).exit_code == 0
