"""Each linked line is right: definition, scheduled, lowered, source, machine code."""

from __future__ import annotations

import re

import pytest

from tensorlang.codegen.short_names import as_shown
from tensorlang.codegen.shown_schedule import simplified_schedule
from tensorlang.explorer.lines import lines_of
from tensorlang.explorer.page import changes
from tensorlang.explorer.stages import stages_of
from tensorlang.ir import show
from tensorlang.ir.visit import walk_statements

CASES = {
    "dense": ("dense", "64x784,512x784"),
    "softmax": ("softmax", "128x1000"),
    "bits": ("random.bits", "1000000"),
}

COMPUTED = re.compile(r"\tv(fma|fnma|add|sub|mul|min|max|shuf|prol|padd|pmul)")


@pytest.fixture(scope="module", params=CASES)
def made(request, subject):
    found = subject(*CASES[request.param])
    stages = stages_of(found.definition, found.schedule, found.kernel)
    return found, {stage.name: stage for stage in stages}


def lines(stage, **having):
    """The texts of the lines whose own tags include one."""
    (tag,) = having.values()
    rows = zip(stage.lines, stage.tags, strict=True)
    return [text for text, tags in rows if tag in tags.own]


def test_stages_have_the_texts_that_show_prints(made):
    found, stages = made
    assert list(stages) == ["definition", "scheduled", "lowered", "source", "asm"]
    text = "\n".join(stages["definition"].lines) + "\n"
    assert text == show(found.definition)
    assert "\n".join(stages["scheduled"].lines) + "\n" == show(
        as_shown(simplified_schedule(found.schedule.function))
    )
    lowered = show(as_shown(found.kernel.lowered))
    assert "\n".join(stages["lowered"].lines) + "\n" == lowered
    assert stages["source"].lines == found.kernel.source.splitlines()
    assert stages["asm"].lines == found.kernel.asm.splitlines()
    for stage in stages.values():
        assert len(stage.tags) == len(stage.lines)


def test_lines_belong_to_their_statements(made):
    found, _ = made
    for function in (found.definition, found.schedule.function, found.kernel.lowered):
        rows = lines_of(function)
        assert "\n".join(row.text for row in rows) + "\n" == show(function)
        numbered = list(walk_statements(function.body))
        for row in rows:
            if row.path:
                assert row.stmt is numbered[row.number]
                assert row.text.strip() in show(row.stmt) or "elif" in row.text


def test_every_instruction_of_a_source_line_is_of_a_lowered_statement(made):
    _, stages = made
    source, asm = stages["source"], stages["asm"]
    for line, statements in zip(asm.sources, asm.statements, strict=True):
        assert statements == (source.statements[line - 1] if line else ())
    # LLVM knows no line of constants in registers
    code = [at for at, text in enumerate(asm.lines) if COMPUTED.match(text)]
    assert code
    for at in code:
        assert asm.statements[at], asm.lines[at]


def test_the_steps_end_in_the_scheduled_function(made):
    found, _ = made
    steps = changes(found.definition, found.schedule)
    assert [step.step for step in steps] == [str(s) for s in found.schedule.trace]
    assert all(step.rows for step in steps)


def test_dense(subject):
    found = subject(*CASES["dense"])
    stages = stages_of(found.definition, found.schedule, found.kernel)
    definition, scheduled, lowered, source, asm = stages
    (product,) = [at for at, text in enumerate(definition.lines) if "reduce(" in text]
    blocks = definition.tags[product].own
    assert "block y" in blocks
    assert not any("copy" in tag or "write" in tag for tag in blocks)
    for block in blocks:
        assert any("reduce(sum" in text for text in lines(scheduled, block=block))
        code = lines(lowered, block=block)
        sums = [text for text in code if " = fma(" in text]
        assert sums
        assert all("w" in text for text in sums)
    # the loop over k is one of the source and of the assembly
    (k,) = [at for at, text in enumerate(definition.lines) if " for k " in text]
    loops = definition.tags[k].own
    assert {tag.removesuffix("_tail").removesuffix("_tail") for tag in loops} <= {
        "loop k",
        "loop k_0",
        "loop k_1",
    }
    assert any(tags.own & loops for tags in lowered.tags)
    assert any(tags.own & loops for tags in source.tags)
    assert any(tags.around & loops for tags in asm.tags)
    fused = [at for at, text in enumerate(asm.lines) if "vfmadd" in text]
    assert fused
    for at in fused:
        assert asm.tags[at].own <= blocks


def test_softmax(subject):
    found = subject(*CASES["softmax"])
    stages = stages_of(found.definition, found.schedule, found.kernel)
    source, asm = stages[3:]
    exponential = [at for at, text in enumerate(source.lines) if "llvm.fma" in text]
    assert exponential
    for at in exponential:
        if "declare" not in source.lines[at]:
            names = {tag.removesuffix("_tail") for tag in source.tags[at].own}
            # `e` is stored in `y`; outside of loops nothing tells the two apart
            assert {"block e"} <= names <= {"block e", "block y"}, source.lines[at]
    largest = [at for at, text in enumerate(source.lines) if "0xFFF0000" in text]
    for at in largest:
        names = {tag.removesuffix("_tail") for tag in source.tags[at].own}
        assert names == {"block top"}
    for at, text in enumerate(asm.lines):
        if "vfmadd" in text or "vfnmadd" in text:
            names = {tag.removesuffix("_tail") for tag in asm.tags[at].own}
            assert {"block e"} <= names <= {"block e", "block y"}, text


def test_random_bits(subject):
    found = subject(*CASES["bits"])
    for stage in stages_of(found.definition, found.schedule, found.kernel)[2:]:
        for text, tags in zip(stage.lines, stage.tags, strict=True):
            assert {t for t in tags.own if t.startswith("block")} <= {
                "block out",
                "block out_tail",
            }
            if "rotl" in text or "vprold" in text:
                assert tags.own or "declare" in text or "define" in text, text
