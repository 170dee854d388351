"""Records listed, explained, moved, verified and removed."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tensorlang import __version__, ir, record_files, records, targets
from tensorlang.ir.digest import digest
from tensorlang.ops import (
    find,
    operator,
)
from tensorlang.ops.kernels import building
from tensorlang.record_files import Record
from tensorlang.scheduling import Knobs

LANES = 16


@pytest.fixture
def record():
    op, here = find("bits"), targets.host()
    knobs = {"lanes": LANES, "chunk": 32, "nontemporal": True}
    workload = op.workload((4096,), threads=here.threads)
    made = building.schedule(op, workload, here, "direct", Knobs.replay(knobs))
    return Record(
        workload=workload,
        target=here.fingerprint,
        architecture=records.architecture(here),
        algorithm="direct",
        schedule="threefry",
        knobs=tuple(sorted(knobs.items())),
        ir=digest(made.function),
        generator=__version__,
        seconds=2e-6,
        spread=0.01,
        default_seconds=5e-6,
        roofline=0.5,
        error=0.0,
        date="2026-11-21",
    )


def path_of(record):
    return record_files.path_of(
        records.user_folder(), record.target, record.workload.operator
    )


def test_no_records_say_how_to_make_some(tlang):
    result = tlang("records", "ls", "random.bits")
    assert result.exit_code == 0


def test_a_record_is_listed(tlang, record):
    records.add(record)
    line = next(
        line
        for line in tlang("records", "ls").stdout.splitlines()
        if line.startswith("random.bits(u32[2], shape[4096]")
    )
    assert "lanes=16" in line
    assert "2 us" in line
    assert "2.50x" in line
    assert "user" in line
    assert "random.bits" not in tlang("records", "ls", "normal").stdout


def test_what_a_schedule_declined_twice_is_listed_once(tlang):
    @operator("records.twice")
    def twice(x, w, v):
        k, j = ir.reduce_axis(x.shape[1], "k"), ir.reduce_axis(w.shape[1], "j")
        inner = ir.compute(
            (x.shape[0], w.shape[1]),
            lambda i, n: ir.sum(x[i, k] * w[k, n] * v[k, n], k),
            "inner",
        )
        return ir.compute(
            x.shape, lambda i, n: ir.sum(inner[i, j] * w[n, j] * v[n, j], j)
        )

    shape = ("--shape", "40x16,16x24,16x24")
    said = tlang("records", "explain", twice.id, *shape, "--declined").stdout
    lines = said.splitlines()
    (step,) = [line for line in lines if "contraction.register_tiles.in_blocks" in line]
    assert step.split()[-1] == "2"


def test_what_a_schedule_declined_is_said_with_the_reason(tlang):
    asked = ("records", "explain", "softmax", "--shape", "64x1000")
    assert "declined" not in tlang(*asked).stdout
    said = tlang(*asked, "--declined").stdout
    assert "attempted by its schedule, and declined:" in said
    assert 's.store_in("top", "y")' in said
    assert "no result 'y' of the shape and type of 'top'" in said
    shown = tlang("show", "softmax", "--shape", "64x1000", "--stage", "trace").stdout
    assert '# declined s.store_in("top", "y"): store_in: nn_softmax has no' in shown


def test_an_exact_record_is_chosen_and_explained(tlang, record):
    records.add(record)
    said = tlang("records", "explain", "bits", "--shape", "4096").stdout
    assert "chosen: direct(lanes=16, chunk=32, nontemporal=True)" in said
    assert "because: exact" in said
    shown = tlang("show", "bits", "--shape", "4096", "--stage", "knobs").stdout
    assert "lanes = 16" in shown


def test_a_near_record_guides_another_shape(tlang, record):
    records.add(record)
    said = tlang("records", "explain", "bits", "--shape", "5000").stdout
    assert "lanes=16" in said
    assert "nearest shape ((2,), (4096,))" in said


def test_a_stale_record_is_passed_over_with_its_reason(tlang, record):
    records.add(dataclasses.replace(record, ir="0" * 64))
    said = tlang("records", "explain", "bits", "--shape", "4096").stdout
    assert f"stale: filed by tensorlang {__version__}" in said
    checked = tlang("records", "verify")
    assert checked.exit_code == 1
    assert "stale: filed by" in checked.stdout


def test_a_record_out_of_its_knobs_domain_is_stale(tlang, record):
    knobs = (("chunk", 32), ("lanes", 7), ("nontemporal", True))
    records.add(dataclasses.replace(record, knobs=knobs))
    said = tlang("records", "explain", "bits", "--shape", "4096").stdout
    assert "stale: knob 'lanes' is one of" in said


def test_good_records_verify(tlang, record):
    records.add(record)
    result = tlang("records", "verify")
    assert result.exit_code == 0
    assert "good" in result.stdout


def test_records_of_what_is_compiled_for_are_replayed_too(tlang, record):
    target, op = targets.get("cuda:sm_90a"), find(record.workload.operator)
    schedule, knobs = building.default(op, record.workload, target, {})
    guess = dataclasses.replace(
        record,
        target=target.fingerprint,
        knobs=tuple(knobs.values.items()),
        ir=digest(schedule.function),
        static=True,
    )
    records.add(guess)
    assert tlang("records", "verify").exit_code == 0
    records.add(dataclasses.replace(guess, ir="0" * 64, seconds=1e-6))
    checked = tlang("records", "verify")
    assert checked.exit_code == 1
    assert "stale: filed by" in checked.stdout
    records.add(dataclasses.replace(guess, target="sm_75"))
    assert "of another machine (sm_75)" in tlang("records", "verify").stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: {"workload": bare(r)}, "stale: its workload has no '"),
        (lambda r: {"knobs": (*r.knobs, ("extra", 1))}, "stale: extra is not a knob"),
        (lambda _: {"schedule": "nope"}, "is not scheduled by 'nope'"),
        (lambda _: {"seconds": 0.0}, "stale: its time is not positive"),
    ],
)
def test_a_hostile_record_is_stale_and_the_others_are_verified(
    tlang, record, change, said
):
    other = dataclasses.replace(
        record, workload=record.workload.with_shapes((2,), (8192,))
    )
    records.add(other)
    records.add(dataclasses.replace(record, **change(record)))
    result = tlang("records", "verify")
    assert result.exit_code == 1, result.output
    (line,) = (x for x in result.stdout.splitlines() if "user record of" in x)
    assert said in line
    assert not result.stderr


def bare(record):
    return dataclasses.replace(record.workload, attributes=())


def test_pinned_knobs_outrank_records(tlang, record, monkeypatch):
    records.add(record)
    monkeypatch.setenv("TENSORLANG_PIN", "random.bits:lanes=8")
    said = tlang("records", "explain", "bits", "--shape", "4096").stdout
    assert "chosen: direct(lanes=8," in said
    assert "TENSORLANG_PIN fixes lanes" in said


def test_a_familys_pin_is_for_the_members_that_have_the_knob(tlang, monkeypatch):
    monkeypatch.setenv("TENSORLANG_PIN", "threefry:lanes=8")
    assert "lanes=8" in tlang("records", "explain", "bits").stdout
    assert tlang("records", "explain", "permutation").exit_code == 0
    monkeypatch.setenv("TENSORLANG_PIN", "permutation:lanes=8")
    refused = tlang("records", "explain", "permutation")
    assert refused.exit_code == 2
    assert "lanes, which is no knob of random.permutation" in refused.stderr


def test_records_move_by_export_and_merge(tlang, record, tmp_path, monkeypatch):
    records.add(record)
    exported = tlang("records", "export", tmp_path / "out")
    assert exported.exit_code == 0, exported.output
    assert [p.suffix for p in (tmp_path / "out").glob("*/*")] == [".json"]
    monkeypatch.setenv("TENSORLANG_RECORDS", str(tmp_path / "elsewhere"))
    records.forget()
    merged = tlang("records", "merge", tmp_path / "out")
    assert "1 of 1 records filed" in merged.stdout
    assert record_files.read(path_of(record)) == [foreign(record)]
    again = tlang("records", "merge", tmp_path / "out")
    assert again.exit_code == 0
    assert record_files.read(path_of(record)) == [foreign(record)]


def test_an_export_replaces_what_was_exported_before(tlang, record, tmp_path):
    records.add(record)
    assert tlang("records", "export", tmp_path / "out").exit_code == 0
    now = dataclasses.replace(record, ir="other", seconds=2 * record.seconds)
    records.add(now, beaten=[record.ir])
    assert "1 of 1 records" in tlang("records", "export", tmp_path / "out").stdout
    (path,) = (tmp_path / "out").glob("*/*.json")
    assert record_files.read(path) == [now]


def test_records_are_removed_by_shape(tlang, record):
    records.add(record)
    other = dataclasses.replace(
        record, workload=record.workload.with_shapes((2,), (8,))
    )
    records.add(other)
    assert tlang("records", "rm", "bits", "--shape", "9").exit_code == 2
    removed = tlang("records", "rm", "bits", "--shape", "8")
    assert removed.stdout == "1 records removed\n"
    assert record_files.read(path_of(record)) == [record]
    assert tlang("records", "rm", "random.bits").exit_code == 0
    assert not path_of(record).exists()


def broken_files(record):
    """A good file, and beside it a truncated one of another operator."""
    records.add(record)
    whole = path_of(record).read_text()
    broken = path_of(record).with_name("random.normal.json")
    broken.write_text(whole[: len(whole) // 2])
    records.forget()
    return broken


def test_a_broken_file_is_named_and_the_rest_is_listed(tlang, record):
    broken = broken_files(record)
    result = tlang("records", "ls")
    assert result.exit_code == 2
    assert "random.bits(u32[2], shape[4096]" in result.stdout
    assert str(broken) in result.stderr
    assert result.stderr.count("\n") == 1
    checked = tlang("records", "verify")
    assert checked.exit_code == 1
    assert f"broken: record file {broken}" in checked.stdout


def test_operators_go_on_without_a_broken_file(tlang, record):
    broken = broken_files(record)
    result = tlang("show", "normal", "--stage", "knobs")
    assert result.exit_code == 0
    assert "lanes = " in result.stdout
    assert result.stderr.startswith(f"tlang: warning: record file {broken}")


def test_a_broken_file_is_not_merged_but_the_good_ones_are(tlang, record, tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    record_files.write(good, [record])
    bad.write_text(json.dumps({"format": 1, "records": [{"knobs": "*/"}]}))
    result = tlang("records", "merge", bad, good)
    assert result.exit_code == 2
    assert str(bad) in result.stderr
    assert record_files.read(path_of(record)) == [foreign(record)]


def foreign(record, **changes):
    """A record as it is filed when it is merged."""
    return dataclasses.replace(record, unverified=True, **changes)


def with_lanes(record, lanes, **changes):
    """The record of another configuration."""
    op, knobs = find("bits"), dict(record.knobs) | {"lanes": lanes}
    made = building.schedule(
        op, record.workload, targets.host(), "direct", Knobs.replay(knobs)
    )
    given = {"knobs": tuple(sorted(knobs.items())), "ir": digest(made.function)}
    return dataclasses.replace(record, **given | changes)


def test_what_is_merged_stays_beside_what_was_measured_here(tlang, record, tmp_path):
    records.add(record)
    claim = with_lanes(record, 32, seconds=1e-12)
    other = with_lanes(record, 8, seconds=1e-3)
    record_files.write(tmp_path / "theirs.json", [claim])
    record_files.write(tmp_path / "others.json", [other, record])
    said = tlang("records", "merge", tmp_path / "theirs.json").stdout
    assert "1 of 1 records filed" in said
    assert "tlang records verify --measure" in said
    (copy,) = tmp_path.glob("records-*")
    assert f"what it held before is in {copy}" in said
    (before,) = copy.glob("*/*.json")
    assert record_files.read(before) == [record]
    assert not list(copy.glob("*/*.lock"))
    tlang("records", "merge", tmp_path / "others.json")  # one of them is known here
    held = record_files.read(path_of(record))
    assert sorted(held, key=lambda r: r.seconds) == [
        foreign(claim), record, foreign(other)
    ]  # fmt: skip
    again = tlang(
        "records", "merge", tmp_path / "others.json", tmp_path / "theirs.json"
    )
    assert again.exit_code == 0
    explained = tlang("records", "explain", "bits", "--shape", "4096").stdout
    assert "chosen: direct(lanes=16" in explained
    assert "merged from elsewhere, not measured here" in explained
    assert "unverified" in tlang("records", "ls", "bits").stdout
    assert "2 unverified" in tlang("records", "verify").stdout


def test_nothing_is_copied_where_nothing_was_or_changes(tlang, record, tmp_path):
    record_files.write(tmp_path / "theirs.json", [record])
    said = tlang("records", "merge", tmp_path / "theirs.json").stdout
    assert "what it held before" not in said
    tlang("records", "merge", tmp_path / "theirs.json")
    records.add(record)  # measured here: the same code is no longer unverified
    assert record_files.read(path_of(record)) == [record]
    said = tlang("records", "merge", tmp_path / "theirs.json").stdout
    assert "0 of 1 records filed" in said
    assert not list(tmp_path.glob("records-*"))


def test_a_claim_is_measured_against_the_record_in_use(tlang, record, tmp_path):
    claim = with_lanes(record, 8, seconds=1e-12)
    other = with_lanes(record, 32, target="amd-zen9")
    record_files.write(tmp_path / "theirs.json", [claim, other])
    tlang("records", "merge", tmp_path / "theirs.json")
    result = tlang("records", "verify", "--measure")
    assert result.exit_code == 0, result.output
    assert "random.bits(u32[2], shape[4096]" in result.stdout
    (kept,) = record_files.read(path_of(record))
    assert not kept.unverified
    assert kept.seconds > 1e-9
    assert record_files.read(path_of(other)) == [foreign(other)]


def test_a_merge_of_a_broken_file_alone_files_nothing_and_says_only_that(
    tlang, tmp_path
):
    (tmp_path / "theirs.json").write_text("{")
    refused = tlang("records", "merge", tmp_path)
    assert refused.exit_code == 2
    assert "filed" not in refused.stdout
    assert "theirs.json" in refused.stderr


def test_a_wrong_claim_is_dropped_and_said(tlang, record, tmp_path):
    stale = dataclasses.replace(record, algorithm="gone", ir="f" * 64)
    record_files.write(tmp_path / "theirs.json", [stale])
    tlang("records", "merge", tmp_path / "theirs.json")
    tlang("records", "verify", "--measure")
    assert not [r for r in record_files.read(path_of(record)) if r.unverified]


def test_pins_are_made_listed_and_removed_by_command(tlang):
    assert "no pins" in tlang("records", "pin").stdout
    assert tlang("records", "pin", "random.bits:lanes=8").exit_code == 0
    assert tlang("records", "pin", "random.bits:lanes=32,chunk=16").exit_code == 0
    listed = tlang("records", "pin").stdout
    assert "random.bits:lanes=32,chunk=16" in listed
    assert "lanes=8" not in listed
    said = tlang("records", "explain", "bits", "--shape", "4096").stdout
    assert "chosen: direct(lanes=32, chunk=16" in said
    assert "pins.txt:1 fixes lanes, chunk" in said
    for bad, why in {
        "random.bits": "is not op:knob=value",
        "nn.nothing:lanes=3": "names no operator",
        "random.bits:lanes=3,random.normal:lanes=4": "for one operator or family",
    }.items():
        refused = tlang("records", "pin", bad)
        assert refused.exit_code == 2
        assert why in refused.stderr
    assert "refuse" not in tlang("records", "pin", "random.bits:lanes=8").stdout
    assert tlang("records", "unpin", "random.bits").exit_code == 0
    refused = tlang("records", "unpin", "random.bits")
    assert refused.exit_code == 2
    assert "has no pin of random.bits" in refused.stderr


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("softmax:nosuch=1", "softmax has no knob nosuch; it has "),
        ("dense:algorithm=zzz", "dense has no algorithm zzz; it has direct, "),
        ("softmax:lanes=banana", "knob 'lanes' is one of "),
        ("softmax:partials=99", "knob 'partials' is one of "),
        ("softmax partials=8", "'softmax partials=8' is not op:knob=value"),
        ("random.bits:lanes=3", "knob 'lanes' is one of "),
        ("threefry:nosuch=1", "threefry has no knob nosuch"),
        ("random.bits:lanes=8,lanes=16", "gives lanes twice"),
    ],
)
def test_a_pin_that_nothing_can_take_is_refused_and_not_written(tlang, bad, why):
    refused = tlang("records", "pin", *bad.split())
    assert refused.exit_code == 2
    assert why in refused.stderr
    assert "no pins" in tlang("records", "pin").stdout


def test_a_pin_that_the_usual_call_refuses_is_made_and_the_document_says_so(tlang):
    made = json.loads(tlang("records", "pin", "dense:dot_rows=4", "--json").stdout)
    assert made["pinned"] == "dense:dot_rows=4"
    assert "which is no knob of nn.dense" in made["refused"]
    good = json.loads(tlang("records", "pin", "dense:rows=4", "--json").stdout)
    assert "refused" not in good


def test_what_a_record_gives_is_measured_and_said(tlang, record):
    records.add(record)
    said = tlang("records", "explain", "bits", "--shape", "4096", "--measure")
    assert said.exit_code == 0, said.output
    assert "recorded 2026-11-21: 2 us +- 1.0%, 2.50x the default" in said.stdout
    assert "the default takes " in said.stdout
    assert "with the default" in said.stdout
    rows = [line.split() for line in said.stdout.splitlines()]
    assert any(row[:1] == ["lanes"] and row[2] == "16" for row in rows)


def test_the_limit_is_that_of_the_page(tlang, record, tmp_path):
    records.add(record)
    asked = ("bits", "--shape", "4096")
    said = json.loads(tlang("records", "explain", *asked, "--json").stdout)
    assert said["measured"] == "recorded 2026-11-21: 2 us +- 1.0%, 2.50x the default"
    assert " a call at the published rate, " in said["limit"]  # none is measured here
    page = tmp_path / "bits.html"
    assert tlang("explore", *asked, "-o", str(page)).exit_code == 0
    assert said["limit"] in page.read_text("utf-8")


def test_a_call_that_runs_the_default_leaves_nothing_to_compare(tlang):
    said = tlang("tune", "bits", "--shape", "4096", "--compare", "default", "record")
    assert said.exit_code == 0, said.output
    assert "a call runs the default: there is nothing to compare" in said.stdout


def test_two_configurations_are_compared_by_command(tlang, record):
    records.add(record)
    asked = ("tune", "bits", "--shape", "4096", "--compare")
    said = tlang("tune", "bits", "--shape", "4097", "--compare", "default", "default")
    assert said.exit_code == 2
    assert "are the same code" in said.stderr
    said = tlang(*asked, "default", "record")
    assert said.exit_code == 0, said.output
    assert "B: " in said.stdout
    assert "direct(lanes=16, chunk=32, nontemporal=True)" in said.stdout
    assert "faster" in said.stdout.splitlines()[-1]
    refused = tlang(*asked, "default", "lanes=7")
    assert refused.exit_code == 2
    assert "'lanes=7' is no configuration of random.bits" in refused.stderr
    for more, why in {
        ("--model", "net.onnx"): "leave out OP",
        ("--compile-only", "--target", "cuda:sm_90a"): "leave out --compile-only",
    }.items():
        refused = tlang(*asked, "default", "record", *more)
        assert refused.exit_code == 2
        assert why in refused.stderr
    away = tlang("records", "explain", "bits", "--measure", "--target", "cuda:sm_90a")
    assert away.exit_code == 2
    assert "no GPU to measure on" in away.stderr
