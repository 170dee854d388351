"""A mistake on the command line is one sentence on standard error and exit code 2."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.installed

BAD = {
    "no such command": (["tuen"], "No such command 'tuen'"),
    "no such option": (["show", "bits", "--frob"], "No such option: --frob"),
    "no operator given": (["show"], "Missing argument 'OP'"),
    "unknown operator": (["show", "frobnicate"], "no operator is called 'frobnicate'"),
    "misspelt operator": (["show", "random.bitz"], "did you mean random.bits"),
    "without its group": (["show", "hash"], "did you mean random.hash"),
    "misspelt to tune": (["tune", "unifrom"], "did you mean uniform"),
    "family to show": (["show", "threefry"], "'threefry' is a family"),
    "unknown target": (["show", "bits", "--target", "tpu"], "'tpu' is no target"),
    "absent target": (["tune", "bits", "--target", "cuda"], "is not present"),
    "target of tune": (["tune", "bits", "--target", "tpu"], "'tpu' is no target"),
    "target of verify": (["verify", "--target", "llvm:3"], "there is one CPU target"),
    "shape of letters": (["show", "bits", "--shape", "64y"], "--shape '64y' is not"),
    "negative shape": (["tune", "bits", "--shape", "-4"], "--shape '-4' is not"),
    "empty shape": (["show", "bits", "--shape", ""], "--shape '' is not a shape"),
    "huge shape": (["show", "bits", "--shape", "9" * 30], "no memory holds"),
    "too many shapes": (
        ["show", "bits", "--shape", "4,4"],
        "has 2 words of threefry2x32",
    ),
    "unknown type": (
        ["show", "bits", "--dtype", "f33"],
        "'f33' is not an element type",
    ),
    "bytes for bits": (["tune", "add", "--dtype", "f8"], "write 'f64'"),
    "wrong type": (["show", "bits", "--dtype", "f32"], "is for u8, u16, u32, u64"),
    "too many types": (["show", "bits", "--dtype", "u8,u8"], "takes 1 types"),
    "unknown attribute": (["show", "bits", "--attr", "p=1"], "has no attribute 'p'"),
    "attribute's form": (["show", "bits", "--attr", "impl"], "not of the form name="),
    "attribute's kind": (["show", "bits", "--attr", "key=3"], "'3' is no random"),
    "attribute's value": (
        ["show", "bits", "--attr", "key=rot13"],
        "'rot13' is no random implementation",
    ),
    "stream that is none": (
        ["show", "bits", "--attr", "stream=zip"],
        "attribute stream is 'jax' or 'packed', not 'zip'",
    ),
    "unknown stage": (["show", "bits", "--stage", "ptx"], "the stages are ir, knobs"),
    "budget's unit": (
        ["tune", "bits", "--budget", "60x"],
        "'60x' is not a positive time",
    ),
    "budget of nothing": (["tune", "bits", "--budget", "0s"], "is not a positive time"),
    "storage in memory": (["tune", "bits", "--storage", "sqlite://"], "names no file"),
    "storage in memory, by its name": (
        ["studies", "ls", "--storage", "sqlite+pysqlite:///file::memory:?uri=true"],
        "names no file",
    ),
    "negative trials": (["tune", "bits", "--trials", "-3"], "--trials -3: at least"),
    "trials of letters": (["tune", "bits", "--trials", "x"], "Invalid value for"),
    "negative seed": (["tune", "bits", "--seed", "-1"], "--seed -1: must be"),
    "no module": (["show", "nomodule_x:op"], "'nomodule_x:op' cannot be imported"),
    "no attribute of it": (["show", "os:nothing"], "'os:nothing' cannot be imported"),
    "no operator in it": (["show", "os:path"], "is a module, not an operator"),
    "hostile module": (["show", "os;x:op"], "not of the form module:name"),
    "unknown peer": (["bench", "bits", "--vs", "cupy"], "the peers are numpy"),
    "no counterpart": (["bench", "normal", "--vs", "numba"], "no counterpart in numba"),
    "type of a peer": (
        ["bench", "bits", "--dtype", "u8", "--vs", "numpy"],
        "numpy has a counterpart of random.bits for u32",
    ),
    "no rounds": (["bench", "bits", "--rounds", "0"], "--rounds 0"),
    "negative threads": (["bench", "bits", "--threads", "-1"], "threads is -1"),
    "no page's folder": (
        ["explore", "bits", "-o", "/no/x.html"],
        "/no/x.html: there is no folder /no; make it first",
    ),
    "neither page nor server": (["explore", "bits"], "give either -o FILE or --serve"),
    "nothing to merge": (["records", "merge", "/no/such.json"], "/no/such.json"),
    "nothing to remove": (["records", "rm", "bits"], "no user record matches bits"),
    "nothing to export": (["records", "export", "/tmp/x"], "no user records"),
    "no such records command": (["records", "frob"], "No such command 'frob'"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_sentence_and_code_2(tlang, name):
    args, said = BAD[name]
    result = tlang(*args)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stderr.startswith("tlang: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        (
            "TENSORLANG_PIN",
            "random.bits:lanes=7",
            "TENSORLANG_PIN: knob 'lanes' is one of",
        ),
        ("TENSORLANG_PIN", "random.bits:lanes=many", "knob 'lanes' is one of"),
        ("TENSORLANG_PIN", "random.bits:speed=7", "speed, which is no knob of random"),
        ("TENSORLANG_PIN", "lanes", "is not op:knob=value"),
        ("TENSORLANG_THREADS", "-2", "TENSORLANG_THREADS is '-2'"),
        ("TENSORLANG_THREADS", "two", "TENSORLANG_THREADS is 'two'"),
    ],
)
def test_a_bad_variable_is_one_sentence_too(tlang, monkeypatch, variable, value, said):
    monkeypatch.setenv(variable, value)
    result = tlang("show", "bits", "--stage", "knobs")
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_fault_of_our_own_is_a_sentence_with_code_1(tlang, monkeypatch):
    def broken(*_):
        raise KeyError("sixth")

    monkeypatch.setattr("tensorlang.targets.availability", broken)
    result = tlang("targets")
    assert result.exit_code == 1
    assert result.stderr.startswith("tlang: KeyError: 'sixth' (an internal error")
    monkeypatch.setenv("TENSORLANG_TRACEBACK", "1")
    assert isinstance(tlang("targets").exception, KeyError)


def test_ctrl_c_is_130(tlang, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tensorlang.targets.availability", stopped)
    assert tlang("targets").exit_code == 130
