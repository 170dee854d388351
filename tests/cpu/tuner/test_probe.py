"""The probe of a machine: numbers that agree with each other."""

import itertools

import pytest
from typer.testing import CliRunner

from tensorlang import machine, targets
from tensorlang.cli.app import app
from tensorlang.machine import store


@pytest.fixture(scope="module")
def probed():
    from tensorlang.tuner.limits.probe import probe

    return probe()


def test_nearer_memory_is_not_slower(probed):
    rates = [held.bandwidth for held in probed.caches] + [probed.memory_bandwidth]
    for near, far in itertools.pairwise(rates):
        assert near > far / 2  # other programs may disturb either
    assert probed.memory_bandwidth <= probed.memory_bandwidth_all


def test_arithmetic_is_consistent(probed):
    for known in probed.instructions:
        assert known.rate > 0
        assert known.latency > 0
    ratio = probed.fma_rate("f32") / probed.fma_rate("f64")
    assert 1 < ratio < 4
    assert 0 < probed.scaling <= probed.cores


def test_it_says_what_was_measured(probed):
    published = machine.published()
    assert {"clock", "fma f32", "fma f64", "memory_bandwidth"} < set(probed.measured)
    assert (probed.name, probed.cores) == (published.name, published.cores)
    assert machine.Machine.from_json(probed.to_json()) == probed


def test_tune_probes_once_and_the_command_shows_it(probed, monkeypatch, tmp_path):
    from tensorlang.cli import tune

    monkeypatch.setattr(store, "folder", lambda: tmp_path)
    monkeypatch.setattr(tune, "probe", lambda: probed)
    tune._probe_once(targets.host(), None)
    assert machine.kept() is None  # the tests' environment asks for none
    monkeypatch.delenv(store.VARIABLE)
    assert tune._probe_once(targets.host(), 2.0) == 0.0  # too short for it
    assert machine.kept() is None
    assert 0.0 < tune._probe_once(targets.host(), 60.0) <= 30.0  # of the budget
    assert machine.kept() == probed
    monkeypatch.setattr(tune, "probe", None)
    tune._probe_once(targets.host(), None)
    shown = CliRunner().invoke(app, ["machine"])
    assert "measured" in shown.stdout
    store._here.cache_clear()


def test_a_folder_that_cannot_be_written_is_said(probed, monkeypatch, tmp_path, capsys):
    from tensorlang.cli import tune

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(store, "folder", lambda: tmp_path / "file" / "machines")
    monkeypatch.setattr(tune, "probe", lambda: probed)
    monkeypatch.delenv(store.VARIABLE)
    with pytest.warns(UserWarning, match="rewrites it"):
        tune._probe_once(targets.host(), None)
    assert "it is not kept" in capsys.readouterr().out


def test_what_llvm_does_not_know_stays_published(monkeypatch):
    from tensorlang.errors import CodegenError
    from tensorlang.runtime.cpu import llvm
    from tensorlang.tuner.limits.probe import _Probe

    def older(text, compiled=llvm.compile_module):
        if "double" in text:
            raise CodegenError("LLVM does not detect it on this processor")
        return compiled(text)

    monkeypatch.setattr(llvm, "compile_module", older)
    known = machine.published()
    held = {known.dtype: known for known in known.instructions}
    numbers = _Probe(known)
    assert numbers.runs(held["f32"])
    assert not numbers.runs(held["f64"])
    assert numbers.instruction(held["f64"]) == held["f64"]


def test_a_machine_that_cannot_be_probed_is_tuned_all_the_same(
    monkeypatch, tmp_path, capsys
):
    from tensorlang.cli import tune
    from tensorlang.errors import CodegenError

    def fails():
        raise CodegenError("no such instruction")

    monkeypatch.setattr(store, "folder", lambda: tmp_path)
    monkeypatch.setattr(tune, "probe", fails)
    monkeypatch.delenv(store.VARIABLE)
    tune._probe_once(targets.host(), None)
    assert "could not be measured: no such instruction" in capsys.readouterr().out
    assert machine.kept() is None


def test_probe_and_file_contradict():
    done = CliRunner().invoke(app, ["machine", "--probe", "--file", "x.json"])
    assert done.exit_code == 2


def test_a_slow_first_call_is_not_taken_for_the_rate():
    from tensorlang.tuner.limits.probe import _Probe

    class Cold:
        calls = 0

        def alone(self, name, count, block):  # noqa: ARG002
            self.calls += 1
            return 1e-6 + count * 1e-8 + (1e-3 if self.calls == 1 else 0)

    cold = object.__new__(_Probe)
    cold._loops, cold._block = Cold(), None
    assert cold.rate("clock") == pytest.approx(1e8, rel=0.01)


def test_a_caller_that_gets_no_processor_shortens_no_time(monkeypatch):
    import threading
    import time

    from tensorlang.tuner.limits import loops

    delays = [0.015]

    class Held(threading.Barrier):
        def wait(self, timeout=None):
            arrived = super().wait(timeout)
            if threading.current_thread() is threading.main_thread():
                time.sleep(delays.pop() if delays else 0)
            return arrived

    monkeypatch.setattr(threading, "Barrier", Held)
    timed = object.__new__(loops.Loops)
    timed._calls = {"sleep": lambda *_: time.sleep(0.02)}
    assert timed.run("sleep", 1, 2, 64) >= 0.02
