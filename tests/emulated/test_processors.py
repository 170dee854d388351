"""Kernels for processors that are not here: detected, built and run under QEMU.

What Linux lists of a processor comes from a file, as QEMU shows the host's list; what
LLVM finds comes from the emulated instructions. (QEMU has none of AVX-512: as
Skylake-SP, code for its vectors of 512 bits is made of AVX2.) Of the results a few are
computed, or with `--every-sample` all.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tensorlang import hardware, targets

QEMU = shutil.which("qemu-x86_64")
TESTS = Path(__file__).parents[1]
# QEMU's name, the file, and what the target is known by
PROCESSORS = {
    "Nehalem": ("nehalem", "intel-f6-m26-sse2"),
    "Haswell": ("haswell", "intel-haswell-m60-avx2"),
    "Skylake-Server": ("skylake-sp", "intel-skylakex-m85-avx512"),
}


def run(
    folder: Path, cpuinfo: str, count: int, *emulator: str
) -> dict[str, np.ndarray]:
    """What the program saves where it runs on such a processor."""
    saved = folder / "results.npz"
    program = [
        sys.executable,
        TESTS / "programs" / "on_processor.py",
        saved,
        str(count),
    ]
    names = {"CACHE": folder / "cache", "CPUINFO": TESTS / "data/cpuinfo" / cpuinfo}
    names |= {"THREADS": 1, "RECORDS": folder / "records"}
    environment = {f"TENSORLANG_{name}": str(value) for name, value in names.items()}
    done = subprocess.run(
        [*emulator, *program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    if done.returncode < 0 and not runs_numpy(*emulator):
        pytest.skip(f"NumPy itself does not run on {' '.join(emulator)}")
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(saved) as arrays:
        return dict(arrays)


def runs_numpy(*emulator: str) -> bool:
    numpy = [*emulator, sys.executable, "-c", "import numpy"]
    return subprocess.run(numpy, capture_output=True, check=False).returncode >= 0


@pytest.fixture(scope="module")
def count(request: pytest.FixtureRequest) -> int:
    return 99 if request.config.getoption("--every-sample") else 6


@pytest.fixture(scope="module")
def here(programs: ModuleType, count: int) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = import_module(
        f"{programs.__name__}.on_processor"
    ).results(count)
    return found


def check(
    found: dict[str, np.ndarray], fingerprint: str, here: dict[str, np.ndarray]
) -> None:
    """Strict results are those of this processor, others are near them."""
    assert str(found.pop("target")).startswith(fingerprint)
    assert found.keys() == here.keys()
    for name, mine in here.items():
        theirs = found[name].view(mine.dtype)
        if name.startswith("about"):
            wide = [array.astype("f8") for array in (theirs, mine)]
            np.testing.assert_allclose(*wide, rtol=0.02, atol=0.02, err_msg=name)
            continue
        same = theirs.view(f"u{mine.dtype.itemsize}") == mine.view(
            f"u{mine.dtype.itemsize}"
        )
        with np.errstate(invalid="ignore"):  # of NaN that signal
            same |= np.isnan(mine) & np.isnan(theirs)
        assert same.all(), (name, mine[~same][:5], theirs[~same][:5])


@pytest.mark.long
@pytest.mark.skipif(QEMU is None, reason="QEMU is not here: apt-get install qemu-user")
@pytest.mark.skipif(
    (platform.machine(), sys.platform) != ("x86_64", "linux"),
    reason="the Python that is emulated is one of Linux on x86-64",
)
@pytest.mark.parametrize("name", PROCESSORS)
def test_the_same_bits_on_another_processor(
    name: str, here: dict[str, np.ndarray], count: int, tmp_path: Path
) -> None:
    cpuinfo, fingerprint = PROCESSORS[name]
    emulator = (QEMU, "-cpu", name)
    check(run(tmp_path, cpuinfo, count, *emulator), fingerprint, here)


@pytest.mark.parametrize("cpuinfo", ["nehalem", "skylake-sp"])
def test_instructions_that_the_system_hides_are_not_used(
    cpuinfo: str, here: dict[str, np.ndarray], count: int, tmp_path: Path
) -> None:
    features = hardware._from_cpuinfo((TESTS / "data/cpuinfo" / cpuinfo).read_text())
    sets = {"sse4_2", "avx2", "avx512vl"}
    if missing := sets.intersection(features.features) - {*targets.host().features}:
        pytest.skip(f"this processor lacks {', '.join(missing)}")
    check(run(tmp_path, cpuinfo, count), "intel-", here)
