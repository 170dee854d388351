"""Records: filed atomically, read strictly, looked up from near to far."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from tensorlang import record_files, records
from tensorlang.errors import RecordError
from tensorlang.record_files import Record
from tensorlang.targets import Target
from tensorlang.workload import Workload

HERE = Target(cpu="amd-zen5", vector_bits=512, features=("avx512f",))
NEIGHBOUR = dataclasses.replace(HERE, l2_bytes=2 << 20)
OLD = dataclasses.replace(HERE, cpu="intel-haswell", vector_bits=256, features=())


def made(
    shape: tuple[int, ...] = (1024,),
    seconds: float = 1e-3,
    target: Target = HERE,
    **changes: object,
) -> Record:
    record = Record(
        workload=Workload("random.bits", (shape,), ("u32",), (("rounds", 20),), 2),
        target=target.fingerprint,
        architecture=records.architecture(target),
        algorithm="direct",
        schedule="elementwise",
        knobs=(("lanes", 32), ("nontemporal", True)),
        ir="ab12",
        generator="0.1.0",
        seconds=seconds,
        spread=0.01,
        default_seconds=2e-3,
        roofline=0.5,
        error=0.0,
        date="2026-11-21",
    )
    return dataclasses.replace(record, **changes)


@pytest.fixture(autouse=True)
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    found = {"user": tmp_path / "user", "shipped": tmp_path / "shipped"}
    monkeypatch.setenv(records.FOLDER_VARIABLE, str(found["user"]))
    monkeypatch.setattr(records, "shipped_folder", lambda: found["shipped"])
    records.forget()
    return found


def test_a_record_reads_back_equal() -> None:
    record = made()
    assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record
    on_gpu = made(measured="NVIDIA H200, driver for CUDA 13.0; SM 1755 MHz, 61 C")
    assert Record.from_json(json.loads(json.dumps(on_gpu.to_json()))) == on_gpu
    assert on_gpu.to_json().keys() - record.to_json().keys() == {"measured"}
    for bad in ("two\nlines", "x" * 500, 3):
        with pytest.raises(RecordError, match="is not a line of text"):
            Record.from_json(record.to_json() | {"measured": bad})


def test_a_knob_may_be_none() -> None:
    record = dataclasses.replace(made(), knobs=(("order", None), ("vector", 8)))
    assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_times_of_different_runs_are_no_comparison() -> None:
    assert records.add(made(seconds=1e-3, ir="first"))
    assert not records.add(made(seconds=1e-4, ir="lucky"))
    assert not records.add(made(seconds=1e-9, ir="guess", static=True))
    (choice,) = records.lookup(made().workload, HERE)
    assert choice.record.ir == "first"
    assert choice.reason == "exact"


def test_the_better_of_two_estimates_stays() -> None:
    assert records.add(made(seconds=2e-3, ir="slow", static=True))
    assert records.add(made(seconds=1e-3, ir="fast", static=True))
    assert not records.add(made(seconds=1.5e-3, ir="between", static=True))
    assert records.lookup(made().workload, HERE)[0].record.ir == "fast"


def test_what_was_measured_comes_before_what_was_estimated(
    layers: dict[str, Path],
) -> None:
    records.add(made((1000,), ir="guess", static=True))
    records.add(made((1 << 14,), ir="far"))
    records.add(made((1024,), target=NEIGHBOUR, ir="neighbour"))
    found = records.lookup(made((1000,)).workload, HERE)
    assert [c.record.ir for c in found] == ["far", "neighbour", "guess"]
    assert found[2].reason == "exact; chosen by static cost, not measured"
    records.add(made((1000,), ir="shipped"), layers["shipped"])
    best = records.lookup(made((1000,)).workload, HERE)[0]
    assert best.record.ir == "shipped"


def test_an_estimate_goes_when_something_is_measured_and_never_comes_back() -> None:
    guess = made(ir="guess", seconds=1e-9, static=True)
    assert records.add(guess)
    assert records.add(made(ir="real", seconds=1.0))
    assert not records.add(guess, beaten=["real"])
    (choice,) = records.lookup(made().workload, HERE)
    assert choice.record.ir == "real"


def test_what_was_measured_here_comes_before_what_was_merged() -> None:
    def claim(**changes: object) -> Record:
        return made(**({"seconds": 1e-12, "unverified": True} | changes))

    assert Record.from_json(json.loads(json.dumps(claim().to_json()))) == claim()
    with pytest.raises(RecordError, match="is neither true nor false"):
        Record.from_json(made().to_json() | {"unverified": 1})
    records.add(made((1000,), ir="guess", static=True))
    assert records.add(claim(shape=(1000,), ir="theirs"))
    assert records.add(claim(shape=(1000,), ir="others"))  # no claim replaces another
    records.add(made((4096,), seconds=1.0, ir="mine"))
    found = records.lookup(made((1000,)).workload, HERE)
    assert [c.record.ir for c in found] == ["mine", "others", "theirs", "guess"]
    assert found[1].reason == "exact; merged from elsewhere, not measured here"
    # those that lost are gone, and so is the one that was measured
    assert records.add(made((1000,), ir="theirs", seconds=2.0), beaten=["others"])
    assert not records.add(claim(shape=(1000,), ir="theirs"))
    found = records.lookup(made((1000,)).workload, HERE)
    assert [c.record.ir for c in found] == ["theirs", "mine"]


def test_a_new_measurement_of_the_same_kernel_replaces_the_old() -> None:
    records.add(made(seconds=1e-3, date="2026-01-01"))
    assert records.add(made(seconds=1.2e-3, date="2026-02-01"))
    assert not records.add(made(seconds=1.1e-3, date="2026-01-15"))


def test_a_noisier_measurement_of_the_same_kernel_does_not_replace_the_old() -> None:
    records.add(made(seconds=1e-3, spread=0.02))
    records.add(made(ir="claim", unverified=True))
    assert not records.add(made(seconds=3e-3, spread=0.5), beaten=["claim"])
    (choice,) = records.lookup(made().workload, HERE)
    assert choice.record.seconds == 1e-3
    assert records.add(made(seconds=2e-3, spread=0.5, generator="0.2.0"))
    assert records.add(made(seconds=1.1e-3, spread=0.01))


def test_the_users_records_overlay_the_shipped(layers: dict[str, Path]) -> None:
    records.add(made(seconds=1e-3, ir="shipped"), layers["shipped"])
    assert records.lookup(made().workload, HERE)[0].record.ir == "shipped"
    records.add(made(seconds=5e-3, ir="mine"))
    assert [c.record.ir for c in records.lookup(made().workload, HERE)] == ["mine"]


def test_look_up_goes_from_near_to_far_and_never_to_another_kind() -> None:
    records.add(made((1000,), ir="near"))
    records.add(made((1 << 14,), ir="far"))
    records.add(made((1024,), target=NEIGHBOUR, ir="neighbour"))
    records.add(made((1024,), target=OLD, ir="other"))
    found = records.lookup(made((1024,)).workload, HERE)
    assert [c.record.ir for c in found] == ["near", "far", "neighbour"]
    assert found[0].reason == "nearest shape ((1000,),)"
    assert found[2].reason == "exact; same architecture, x86_64-512"


def test_other_types_attributes_and_distant_shapes_do_not_serve() -> None:
    records.add(made((1 << 30,)))
    workload = made().workload
    assert records.lookup(workload, HERE) == ()
    records.add(made())
    for other in (
        dataclasses.replace(workload, dtypes=("u64",)),
        dataclasses.replace(workload, attributes=(("rounds", 13),)),
        dataclasses.replace(workload, operator="random.uniform"),
        dataclasses.replace(workload, shapes=((1024, 1),)),
    ):
        assert records.lookup(other, HERE) == ()


BROKEN = {
    "truncated": '{"format": 1, "records": [',
    "not json": "hello",
    "another format": '{"format": 7, "records": []}',
    "not an object": "[]",
    "no records": '{"format": 1}',
    "deep": "[" * 100_000,
    "a record that is no object": '{"format": 1, "records": [3]}',
    "an empty record": '{"format": 1, "records": [{}]}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_named_and_operators_go_on(text: str) -> None:
    path = record_files.path_of(records.user_folder(), HERE.fingerprint, "random.bits")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(RecordError, match=r"random\.bits\.json cannot be used"):
        record_files.read(path)
    with pytest.warns(UserWarning, match=r"random\.bits\.json cannot be used"):
        assert records.lookup(made().workload, HERE) == ()
    with pytest.raises(RecordError, match="mend or remove it"):
        records.add(made())
    assert path.read_text() == text


HOSTILE = [
    ("schedule", "x */ __import__('os')"),
    ("target", "../../etc"),
    ("knobs", {"lanes": [1, 2]}),
    ("knobs", {"a b": 1}),
    ("seconds", float("nan")),
    ("seconds", -1.0),
    ("seconds", "1"),
    ("static", 1),
    ("workload", {"operator": 3}),
    ("extra", 1),
    ("seconds", int("9" * 400)),
    ("date", "x"),
    *(
        ("workload", made().workload.to_json() | change)
        for change in (
            {"shapes": [[-5]]},
            {"shapes": [[10**30]]},
            {"dtypes": ["x*/"]},
            {"threads": 10**9},
            {"operator": "a b"},
        )
    ),
]


@pytest.mark.parametrize(("field", "value"), HOSTILE)
def test_a_hostile_field_is_refused(field: str, value: object) -> None:
    data = made().to_json() | {field: value}
    with pytest.raises(RecordError):
        Record.from_json(data)


def file_many(folder: str, first: int) -> None:
    for number in range(first, first + 20):
        records.add(made((number,)), Path(folder))


def test_two_tuners_on_one_file_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=file_many, args=(str(tmp_path), start))
        for start in (1, 101)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    path = record_files.path_of(tmp_path, HERE.fingerprint, "random.bits")
    assert len(record_files.read(path)) == 40


def test_a_failed_write_leaves_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    records.add(made(ir="old"))
    path = record_files.path_of(records.user_folder(), HERE.fingerprint, "random.bits")
    before = path.read_text()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        record_files.write(path, [made(ir="new")])
    assert path.read_text() == before
    assert [p.suffix for p in path.parent.iterdir()].count(".new") == 0


def test_a_workload_that_leaves_its_threads_open_has_the_targets() -> None:
    here = dataclasses.replace(HERE, threads=2)
    records.add(made(seconds=1e-3, ir="two"))
    one = dataclasses.replace(made().workload, threads=1)
    records.add(dataclasses.replace(made(ir="one"), workload=one))
    wanted = dataclasses.replace(made().workload, threads=0)
    first = records.lookup(wanted, here)[0]
    assert (first.record.ir, first.reason) == ("two", "exact")
    first = records.lookup(wanted, here.with_threads(1))[0]
    assert (first.record.ir, first.reason) == ("one", "exact")


def test_what_was_beaten_side_by_side_goes_whatever_its_time_was() -> None:
    records.add(made(seconds=1e-9, ir="lucky"))
    assert not records.add(made(seconds=1e-3, ir="better"))
    assert not records.add(made(seconds=1e-3, ir="better"), beaten=["another"])
    assert records.add(made(seconds=1e-3, ir="better"), beaten=["lucky"])
    assert records.lookup(made().workload, HERE)[0].record.ir == "better"


def test_folders_that_are_no_machines_are_passed_over() -> None:
    for name in (".git", "a b", "..."):
        (records.user_folder() / name).mkdir(parents=True)
    assert records.lookup(made().workload, HERE) == ()


def test_a_record_in_another_operators_file_is_refused() -> None:
    path = record_files.path_of(records.user_folder(), HERE.fingerprint, "random.split")
    record_files.write(path, [made()])
    with pytest.raises(RecordError, match=r"holds a record of random\.bits"):
        record_files.read(path)


def test_only_regular_files_are_read() -> None:
    path = record_files.path_of(records.user_folder(), HERE.fingerprint, "random.bits")
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(RecordError, match="not a regular file"):
        record_files.read(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(RecordError, match="not a regular file"):
        record_files.read(path)


def test_tests_leave_the_records_of_the_user_alone() -> None:
    assert not records.user_folder().is_relative_to(Path.home())
