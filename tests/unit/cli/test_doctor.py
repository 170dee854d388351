"""`tlang doctor`: what is here, what is missing, how to get it."""

import json
from types import SimpleNamespace

import pytest

from tensorlang import targets
from tensorlang.cli import doctor
from tensorlang.version import __version__

pytestmark = pytest.mark.installed


def parts(tlang, *args):
    result = tlang("doctor", "--json", *args)
    return result, {
        each["part"]: each for each in json.loads(result.stdout)["findings"]
    }


def test_it_tells_what_is_here(tlang):
    result, found = parts(tlang)
    assert result.exit_code == 0, result.stderr
    assert found["tensorlang"]["said"].startswith(__version__)
    assert "llvmlite" in found["packages"]["said"]
    assert str(targets.host().threads) in found["llvm"]["said"]
    assert "cached in" in found["kernels"]["said"]
    assert "0 yours" in found["records"]["said"]
    assert "psycopg" in found["[postgresql]"]["said"]


def test_it_tells_how_to_get_what_is_missing(tlang, monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name == "onnx" else "1")
    result, found = parts(tlang)
    assert result.exit_code == 0
    assert found["[onnx]"]["state"] == "missing"
    assert found["[onnx]"]["remedy"] == "pip install 'tensorlang[onnx]'"


def test_a_package_that_it_needs_is_a_failure(tlang, monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name == "numpy" else "1")
    result, found = parts(tlang)
    assert result.exit_code == 1
    assert found["packages"]["state"] == "broken"
    assert "!!  packages" in result.stderr


def test_records_that_cannot_be_read_are_named(tlang, tmp_path):
    folder = tmp_path / "records" / targets.host().fingerprint
    folder.mkdir(parents=True)
    (folder / "nn.dense.json").write_text("{")
    result, _ = parts(tlang)
    assert result.exit_code == 1
    assert "tlang records verify" in result.stdout


def test_a_full_disk_is_a_failure(tlang, monkeypatch):
    full = SimpleNamespace(free=1 << 20)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: full)
    result, found = parts(tlang)
    assert result.exit_code == 1
    assert "1 MiB free" in found["kernels"]["said"]


def test_it_fits_a_terminal_of_80_columns(tlang):
    lines = tlang("doctor").stdout.splitlines()
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []
