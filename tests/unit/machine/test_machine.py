"""Descriptions of machines: published, emulated and kept."""

import json
import multiprocessing
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tensorlang import machine, targets
from tensorlang.errors import RecordError
from tensorlang.machine import Machine, store, system

EMULATED = sorted((Path(__file__).parents[2] / "data/machines").glob("*.json"))


@pytest.fixture(autouse=True)
def user_data(tmp_path, monkeypatch):
    monkeypatch.delenv(store.VARIABLE, raising=False)
    monkeypatch.setattr(store, "folder", lambda: tmp_path / "machines")
    store._here.cache_clear()
    yield
    store._here.cache_clear()


def test_there_are_ten_emulated_machines():
    assert len(EMULATED) >= 10


@pytest.mark.parametrize("path", EMULATED, ids=lambda path: path.stem)
def test_emulated_machines_are_plausible(path):
    made = machine.load(path)
    assert made.name == path.stem
    assert made.source
    assert made.fma_rate("f32") == 2 * made.fma_rate("f64") > 0
    assert made.fma_latency > 0
    assert made.rate("matrix", "f64") == 0
    sizes = [held.share for held in made.caches]
    assert sizes[0] < made.cache(2).share
    rates = [held.bandwidth for held in made.caches] + [made.memory_bandwidth]
    assert rates == sorted(rates, reverse=True)
    assert made.memory_bandwidth <= made.memory_bandwidth_all
    assert Machine.from_json(made.to_json()) == made
    assert hash(made) == hash(machine.load(path))


def test_here_is_published_until_it_is_measured():
    found = machine.here()
    assert found == machine.published()
    assert found.name == targets.host().fingerprint
    assert not found.measured
    measured = replace(found, wake=1e-3, measured=("wake",))
    machine.keep(measured)
    assert machine.here() == machine.kept() == measured


def test_a_variable_names_another_description(monkeypatch):
    machine.keep(replace(machine.published(), wake=1e-3))
    assert machine.may_probe()
    monkeypatch.setenv(store.VARIABLE, "published")
    assert machine.here() == machine.published()
    monkeypatch.setenv(store.VARIABLE, str(EMULATED[0]))
    assert machine.here() == machine.load(EMULATED[0])
    assert not machine.may_probe()


BROKEN = {
    "": "not JSON",
    "[" * 100_000: "not JSON",
    "[]": "not a description",
    '{"format": 99, "name": "x"}': "format 1",
    '{"format": 1}': "name",
    '{"format": 1, "name": 3}': "name is 3",
    '{"format": 1, "name": "x", "wake": NaN}': "wake is nan",
    '{"format": 1, "name": "x", "cores": 0}': "must be positive",
    '{"format": 1, "name": "x", "cores": true}': "cores is True",
    '{"format": 1, "name": "x", "colour": 1}': "no 'colour'",
    '{"format": 1, "name": "x", "caches": [1]}': "describes no Cache",
    '{"format": 1, "name": "x", "caches": [{"level": 1, "bytes": 1, "line": 0}]}': "li",
    '{"format": 1, "name": "x", "instructions": '
    '[{"kind": "mul", "dtype": "f32", "rate": 1}]}': "'mul'",
}


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:40])
def test_broken_files_are_ignored_with_a_warning(text):
    path = store.path_of(targets.host().fingerprint)
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(RecordError, match=BROKEN[text]) as problem:
        machine.load(path)
    assert str(path) in str(problem.value)
    with pytest.warns(UserWarning, match="machine file"):
        assert machine.here() == machine.published()
    machine.keep(machine.published())
    assert machine.kept() == machine.published()


def test_files_that_are_no_text_are_ignored():
    path = store.path_of(targets.host().fingerprint)
    path.parent.mkdir()
    path.write_bytes(b"\xff\xfe")
    with pytest.warns(UserWarning, match="machine file"):
        assert machine.kept() is None


def test_files_of_another_machine_are_ignored():
    foreign = machine.load(EMULATED[0])
    path = store.path_of(targets.host().fingerprint)
    path.parent.mkdir()
    path.write_text(foreign.to_json())
    with pytest.warns(UserWarning, match=f"is of {foreign.name}"):
        assert machine.kept() is None


def _keep_often(folder, wake):
    store.folder = lambda: folder
    made = replace(machine.load(EMULATED[0]), wake=wake)
    for _ in range(50):
        machine.keep(made)


def test_two_processes_write_at_once(tmp_path):
    start = multiprocessing.get_context("fork").Process
    writers = [start(target=_keep_often, args=(tmp_path, wake)) for wake in (1.0, 2.0)]
    for writer in writers:
        writer.start()
    path = tmp_path / f"{EMULATED[0].stem}.json"
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            assert machine.load(path).wake in (1.0, 2.0)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert list(tmp_path.glob("*.new")) == []


def _index(folder, number, **values):
    index = folder / f"index{number}"
    index.mkdir(parents=True)
    for name, value in values.items():
        (index / name).write_text(f"{value}\n")


def test_caches_of_a_server_with_two_threads_a_core(tmp_path):
    line = {"coherency_line_size": 64}
    _index(tmp_path, 0, level=1, size="48K", type="Data", ways_of_associativity=12,
           shared_cpu_list="0,56", **line)  # fmt: skip
    _index(tmp_path, 1, level=1, size="32K", type="Instruction", **line)
    _index(tmp_path, 2, level=2, size="2048K", type="Unified", ways_of_associativity=16,
           shared_cpu_list="0,56", **line)  # fmt: skip
    _index(tmp_path, 3, level=3, size="107520K", type="Unified",
           ways_of_associativity=15, shared_cpu_list="0-55,56-111", **line)  # fmt: skip
    assert system.caches_of(tmp_path, 2) == [
        (1, 48 << 10, 64, 12, 1),
        (2, 2 << 20, 64, 16, 1),
        (3, 105 << 20, 64, 15, 56),
    ]


def test_caches_of_an_arm_board_that_publishes_little(tmp_path):
    _index(tmp_path, 0, level=1, type="Data", size="64K")
    _index(tmp_path, 1, level=2, type="Unified", size="unknown")
    (tmp_path / "index2").mkdir()
    assert system.caches_of(tmp_path) == [(1, 64 << 10, 64, 0, 1)]
    assert system.caches_of(tmp_path / "none") == []


INTEL = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu MHz\t\t: 2600.000\n"
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n"


@pytest.mark.parametrize(
    ("cpuinfo", "maximum", "clock"),
    [
        (INTEL, "", 2.6e9),
        (INTEL, "3900000\n", 3.9e9),
        (ARM, "", 3e9),
        (ARM, "2600000\n", 2.6e9),
        ("cpu MHz : 0.000", "", 3e9),
    ],
)
def test_clocks(cpuinfo, maximum, clock):
    assert system.clock_of(cpuinfo, maximum) == clock


@pytest.mark.parametrize(
    ("features", "cpu", "per_cycle"),
    [
        (("avx2", "fma"), "amd-zen3-m1", {("fma", "f32"): 32, ("fma", "f64"): 16}),
        (
            ("avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"),
            "intel-sapphirerapids-m143",
            {("fma", "f32"): 64, ("dot", "i8"): 256, ("matrix", "i8"): 2048},
        ),
        (("asimd", "asimdhp"), "arm-f0-m3340", {("fma", "f16"): 64}),
    ],
)
def test_rates_follow_from_the_architecture(features, cpu, per_cycle):
    made = system.published(replace(targets.host(), features=features, cpu=cpu))
    for (kind, dtype), operations in per_cycle.items():
        assert made.rate(kind, dtype) == pytest.approx(made.clock * operations)


@pytest.mark.parametrize(("arch", "count"), [("x86_64", 16), ("aarch64", 31)])
def test_general_registers_follow_from_the_architecture(arch, count):
    target = replace(targets.host(), arch=arch)
    assert system.published(target).general_registers == count


def test_lists_of_processors():
    assert [system.count_of(text) for text in ("", "0", "0-3,8\n")] == [1, 1, 5]


def test_importing_it_loads_neither_numpy_nor_llvm():
    code = (
        "import sys, tensorlang.machine as m; m.published(); "
        "print([n for n in ('numpy', 'llvmlite') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_files_are_json():
    assert json.loads(machine.published().to_json())["format"] == 1
