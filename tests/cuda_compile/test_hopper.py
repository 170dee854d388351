"""The ring of `examples/hopper_ring.py` compiles to what Hopper has."""

import importlib.util
import re
from pathlib import Path

import pytest

from benchmarks.hopper_counts import COLUMNS, counted
from tensorlang import build

EXAMPLE = Path(__file__).parents[2] / "examples" / "hopper_ring.py"


@pytest.fixture(scope="module")
def hopper_ring():
    spec = importlib.util.spec_from_file_location("hopper_ring", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.hopper_ring


@pytest.mark.parametrize(("width", "stages"), [(64, 4), (128, 4), (256, 3)])
def test_a_ring_of_bulk_copies_and_warpgroups(hopper_ring, width, stages):
    func = hopper_ring(1024, 1024, 1024, width=width, stages=stages)
    kernel = build(func, "cuda:sm_90a", store=False)
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["shared_bytes"] >= stages * (128 + width) * 128
    sass = kernel.asm
    assert f"HGMMA.64x{width}x16.F32.BF16" in sass
    assert "UTMALDG.2D" in sass
    assert re.search(r"SYNCS\.\w+\.TRANS64\.TRYWAIT|SYNCS.*TRYWAIT", sass)
    assert len(re.findall("USETMAXREG", sass)) == 2
    assert not re.search(r"\b(LDL|STL)\b", sass)


def test_the_loops_of_a_gradient_copy_and_multiply():
    found = dict(zip(COLUMNS, zip(*rows_of("its gradient"), strict=True), strict=False))
    assert found["products"] == ("4", "4")  # of 64 x 256 x 16 for 64 steps
    assert found["copies"] == ("5", "6")  # of 64 columns, and of x of 64 steps
    assert found["fragment loads"] == found["block barriers"] == ("0", "0")


def rows_of(rung):
    """The counts of a rung's launches; none of them spills."""
    rows = [row[1:] for row in counted(4096, rung)]
    assert {row[-1] for row in rows} == {"0"}
    return rows
