"""Targets: detection, names, threads, fingerprints."""

import subprocess
import sys

import pytest

from tensorlang import devices, hardware, targets
from tensorlang.errors import TargetError
from tensorlang.targets import Target

ZEN5 = """processor : 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
stepping\t: {stepping}
flags\t\t: fma avx2 avx512f avx512bw avx512dq avx512vl avx512_bf16

processor : 1
"""


def test_host_has_limits_a_schedule_can_use():
    host = targets.host()
    assert host.kind == "llvm"
    assert host.threads >= 1
    assert host.vector_bits in (128, 256, 512)
    assert host.lanes(32) == host.vector_bits // 32
    assert host == targets.get("llvm") == targets.get(host) == targets.get(None)


def test_fingerprint_ignores_stepping_and_threads():
    one = hardware._from_cpuinfo(ZEN5.format(stepping=1))
    two = hardware._from_cpuinfo(ZEN5.format(stepping=2))
    assert one == two
    target = Target(cpu=one.name, features=one.features, l1_bytes=48 << 10)
    assert target.fingerprint == "amd-zen5-m2-avx512-bf16-l1_48k-l2_1m-l3_32m"
    assert target.with_threads(7).fingerprint == target.fingerprint


def test_the_processor_that_a_file_tells_of(monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text(ZEN5.format(stepping=1))
    monkeypatch.setenv(hardware.CPUINFO_VARIABLE, str(tmp_path / "cpuinfo"))
    found = hardware.processor.__wrapped__()
    assert found.name == "amd-zen5-m2"


@pytest.mark.skipif(sys.platform != "linux", reason="what Linux lists")
def test_vector_instructions_that_the_system_does_not_list_are_hidden():
    found = hardware._from_cpuinfo(ZEN5.format(stepping=1))
    listed = ("avx512bf16", "avx512vl", "fma", "sse4.1", "popcnt")
    assert not any(found.hides(name) for name in listed)
    assert all(found.hides(name) for name in ("f16c", "amx-tile", "avx512fp16", "avx"))


def test_what_a_target_has():
    assert Target(features=("asimd",)).has("fma")
    assert Target(features=("f16c",)).has("f16 conversions")
    assert not Target(features=("avx2", "sse2")).has("fma")


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name"),
    [
        ("amd", 0x19, 0x11, "zen4"),
        ("amd", 0x19, 0x21, "zen3"),
        ("amd", 0x17, 0x31, "zen2"),
        ("intel", 6, 143, "sapphirerapids"),
        ("intel", 6, 250, "f6"),
        ("arm", 8, 3, "f8"),
    ],
)
def test_architectures(vendor, family, model, name):
    assert hardware.architecture(vendor, family, model) == name


def test_unknown_target_says_the_known_ones():
    with pytest.raises(TargetError, match=r"'metal' is no target.*'llvm', 'opencl'"):
        targets.get("metal")
    with pytest.raises(TargetError, match="'cuda:x' is no target"):
        targets.get("cuda:x")
    for odd in ("opencl:", "cuda:", "cuda:\u0663", f"opencl:{'9' * 5000}"):
        with pytest.raises(TargetError, match="is no target"):
            targets.get(odd)
    with pytest.raises(TargetError, match="one CPU target"):
        targets.get("llvm:1")


def test_absent_target_says_how_to_get_it(monkeypatch):
    with pytest.raises(TargetError, match=r"'cuda:1' is not present"):
        targets.get("cuda:1")
    assert targets.availability()["llvm"] == ""
    monkeypatch.setattr(devices, "find_spec", lambda _: None)
    assert "not present" in targets.availability()["opencl"]
    with pytest.raises(TargetError, match=r"pyopencl is not installed; it needs pip"):
        targets.get("opencl")


def test_threads_from_the_environment(monkeypatch):
    monkeypatch.setenv("TENSORLANG_THREADS", "5")
    assert targets.host().threads == 5
    for wrong in ("0", "-2", "many", "1.5", "99999"):
        monkeypatch.setenv("TENSORLANG_THREADS", wrong)
        with pytest.raises(TargetError, match=f"TENSORLANG_THREADS is '{wrong}'"):
            targets.host()


def test_the_target_of_calls_that_name_none_from_the_environment(monkeypatch):
    monkeypatch.setenv(targets.TARGET_VARIABLE, "cuda:sm_80")
    assert targets.get().name == targets.get(None).name == "cuda:sm_80"
    assert targets.get("llvm") == targets.host()
    monkeypatch.setenv(targets.TARGET_VARIABLE, "tpu")
    with pytest.raises(TargetError, match="'tpu' is no target"):
        targets.get()
    monkeypatch.setenv(targets.TARGET_VARIABLE, "")
    assert targets.get() == targets.host()


def test_importing_targets_loads_no_compiler():
    code = (
        "import sys, tensorlang.targets as t; t.host(); "
        "print([m for m in ('llvmlite', 'jinja2', 'pyopencl') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]", done.stderr
