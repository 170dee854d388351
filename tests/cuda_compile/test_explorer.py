"""Lines of CUDA C++, PTX and SASS are linked to the statements they come from."""

from __future__ import annotations

import pytest

from tensorlang import runtime, targets
from tensorlang.cli import configuration, options
from tensorlang.cli.explore import subject_of
from tensorlang.explorer.page import page
from tensorlang.explorer.stages import stages_of

CASES = {
    "dense": ("dense", "64x784,512x784", ("fmaf_rn(", "fma.rn", "FFMA"), "block y"),
    "softmax": ("softmax", "128x1000", ("fmaf_rn(", "fma.rn", "FFMA"), "block e"),
    "bits": ("random.bits", "1000000", ("rotl", "xor", "LOP3"), "block out"),
}


@pytest.mark.parametrize("name", CASES)
def test_lines_are_linked_down_to_the_gpus_instructions(name):
    op, shape, texts, block = CASES[name]
    target = targets.to_compile("cuda:sm_90a")
    found = options.operator(op)
    workload = options.workload(found, shape)
    chosen = configuration.choose(found, workload, target)
    kernel = runtime.build(chosen.schedule, target, knobs=chosen.knobs.values)
    definition = found.function(workload, chosen.algorithm)
    stages = stages_of(definition, chosen.schedule, kernel)
    assert [stage.name for stage in stages[3:]] == ["source", "ptx", "sass"]
    assert stages[3].lines == kernel.source.splitlines()
    for stage, text in zip(stages[3:], texts, strict=True):
        rows = zip(stage.lines, stage.statements, stage.tags, strict=True)
        linked = [tags for line, own, tags in rows if text in line and own]
        assert linked, stage.name
        assert any(block in tags.own for tags in linked), stage.name
    indices = [
        (line, own)
        for line, own in zip(stages[3].lines, stages[3].statements, strict=True)
        if "blockIdx" in line or "threadIdx" in line
    ]
    assert indices
    assert all(own for _, own in indices)


def test_a_copy_that_threads_hold_is_in_their_registers():
    op, target = options.operator("softmax"), targets.to_compile("cuda:sm_80")
    workload = options.workload(op, "512x4096")
    text = page(
        subject_of(op, workload, target, configuration.choose(op, workload, target))
    )
    said = "x_global (register f32[16] a thread) in each row0_block<"
    assert f"x \N{RIGHTWARDS ARROW} {said}" in text
