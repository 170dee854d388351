"""`tlang verify`, `bench`, `ops` and `targets`."""

from __future__ import annotations

import re

import pytest

from tensorlang import targets
from tensorlang.ops import find, operators
from tensorlang.ops.random import known_answers, verification
from tensorlang.runtime.cuda import toolchain


@pytest.mark.parametrize("group", verification.GROUPS, ids=lambda group: group.name)
def test_known_answers(group):
    answers = list(group.check(None))
    assert answers
    assert [str(answer) for answer in answers if not answer.correct] == []


def test_there_are_36_vectors_of_random123():
    (group,) = (g for g in verification.GROUPS if g.name.startswith("Random123, 36"))
    assert len(list(group.check(None))) == 36


@pytest.mark.long
def test_verify_tells_a_line_a_check(tlang):
    result = tlang("verify", "random.hash", "--target", "all")
    assert result.exit_code == 0, result.output
    passed = [line for line in result.stdout.splitlines() if "  pass  " in line]
    present = [kind for kind, problem in targets.availability().items() if not problem]
    compiled = "cuda" not in present and not toolchain.missing()
    assert len(passed) == 5 * len(present) + compiled
    if compiled:
        assert "cuda is compiled only, nothing is run" in result.stdout
        assert "compiled only, not run" in passed[-1]
    elif "cuda" not in present:
        assert "skipped cuda" in result.stdout
    assert f"on {targets.host()}" in result.stdout


def test_verify_fails_on_a_wrong_answer(tlang, monkeypatch):
    words = known_answers.TFLITE["threefry2x32"].replace("43444564", "43444565")
    monkeypatch.setitem(known_answers.TFLITE, "threefry2x32", words)
    result = tlang("verify", "random.hash")
    assert result.exit_code == 1
    (line,) = (line for line in result.stdout.splitlines() if "FAIL" in line)
    assert "TFLite" in line
    assert "43444564" in line
    assert result.stdout.endswith("1 failed\n")


def test_verify_fails_on_a_kernel_that_differs(tlang, monkeypatch):
    from tensorlang.tuner.correctness import gate

    def wrong(*_):
        raise gate.Wrong("3 of 37 elements of out are wrong")

    monkeypatch.setattr(gate.Gate, "check", wrong)
    result = tlang("verify", "exponential")
    assert result.exit_code == 1
    assert "FAIL  random.exponential" in result.stdout
    assert "3 of 37 elements" in result.stdout


def test_verify_compares_an_operator_without_known_answers(tlang):
    result = tlang("verify", "random.gather")
    assert result.exit_code == 0, result.output
    assert "matches the interpreter: 3 shapes, " in result.stdout


def test_bench_without_peers_times_ours(tlang):
    result = tlang("bench", "bits", "--shape", "4096", "--rounds", "2")
    assert result.exit_code == 0, result.output
    assert re.search(r"^tensorlang, into existing +\d", result.stdout, re.MULTILINE)
    assert len(result.stdout.splitlines()[0]) <= 80


def test_bench_gives_a_peer_its_like(tlang):
    args = ("bits", "--shape", "4096", "--rounds", "2", "--vs", "numpy")
    result = tlang("bench", *args)
    assert result.exit_code == 0, result.output
    assert re.search(r"^numpy +\d.* fresh$", result.stdout, re.MULTILINE)
    assert "tensorlang, fresh" in result.stdout


def test_bench_says_how_to_get_what_is_not_installed(tlang, monkeypatch):
    from tensorlang.tuner.peers import random as peers

    def absent(*_):
        raise ImportError("No module named 'torch'")

    monkeypatch.setattr(peers, "torch_random", absent)
    result = tlang("bench", "uniform", "--vs", "torch")
    assert result.exit_code == 2
    assert "No module named 'torch'" in result.stderr
    assert "pip install 'tensorlang[bench]'" in result.stderr


def test_ops_are_all_listed_with_their_types(tlang):
    lines = tlang("ops").stdout.splitlines()
    assert len(lines) == 1 + len(operators())
    (bits,) = (line for line in lines if line.startswith("random.bits "))
    assert "u8 u16 u32 u64" in bits
    assert len(tlang("ops", "bits").stdout.splitlines()) == 2


def test_targets_say_what_is_here_and_how_to_get_the_rest(tlang):
    said = tlang("targets").stdout
    assert "llvm: present" in said
    assert targets.host().fingerprint in said
    assert f"threads      {targets.host().threads}" in said
    assert "cuda: missing" in said


def test_types_that_operators_declare_are_those_they_draw():
    assert find("bits").dtypes == ("u8", "u16", "u32", "u64")
    assert find("nn.dropout").dtypes == ("f32", "bf16", "f16", "f64")
