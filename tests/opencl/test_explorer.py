"""Lines of OpenCL C are linked to the statements that they are printed from."""

from __future__ import annotations

import pytest

from tensorlang import runtime
from tensorlang.cli import configuration, options
from tensorlang.explorer.stages import stages_of

CASES = {
    "dense": ("dense", "64x784,512x784", "fma(", "block y"),
    "softmax": ("softmax", "128x1000", "fma(", "block e"),
    "bits": ("random.bits", "1000000", "rot", "block out"),
}


@pytest.mark.parametrize("model", ["cpu", "gpu"])
@pytest.mark.parametrize("name", CASES)
def test_lines_of_source_are_linked(device, gpu_like, name, model):
    op, shape, text, block = CASES[name]
    target = device if model == "cpu" else gpu_like
    found = options.operator(op)
    workload = options.workload(found, shape)
    chosen = configuration.choose(found, workload, target)
    kernel = runtime.build(chosen.schedule, target, knobs=chosen.knobs.values)
    definition = found.function(workload, chosen.algorithm)
    *_, lowered, source = stages_of(definition, chosen.schedule, kernel)
    assert "\n".join(source.lines) + "\n" == kernel.source
    body = max(at for at, line in enumerate(source.lines) if line == "{")
    code = list(zip(source.lines, source.statements, source.tags, strict=True))[body:]
    computed = [row for row in code if text in row[0]]
    assert computed
    for line, statements, tags in computed:
        assert statements, line
        assert any(tag.startswith((block, "loop")) for tag in tags.own), line
    loops = [row for row in code if row[0].lstrip().startswith("for (")]
    for line, statements, _ in loops:  # a loop is the lowered one of its variable
        variable = line.split()[2]
        numbers = set(statements)
        assert any(
            f"for {variable} in" in lowered.lines[at] and set(own) & numbers
            for at, own in enumerate(lowered.statements)
        )
