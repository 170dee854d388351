"""The ring of `examples/hopper_ring.py` compiles to what Hopper has."""

import importlib.util
import re
from pathlib import Path

import pytest

from benchmarks.hopper_counts import COLUMNS, counted, main
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


@pytest.mark.parametrize(
    ("rung", "products", "copies"),
    [
        ("the same, products in flight", ["4"], ["2"]),
        ("its gradient", ["4", "4"], ["5", "6"]),  # of 64 columns, or 64 x 128
        ("8 products, `math.matmul`", ["4"], ["5"]),
    ],
)
def test_loops_copy_and_multiply(rung, products, copies):
    rows = [row[1:] for row in counted(4096, rung)]
    found = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=False))
    assert found["products"] == products  # of 64 x 256 x 16 for 64 steps
    assert found["copies"] == copies
    assert set(found["waits"]) == {"3"}  # ptxas serializes none
    assert set(found["fragment loads"] + found["block barriers"]) == {"0"}
    assert {row[-1] for row in rows} == {"0"}  # spilled


@pytest.mark.parametrize("size", ["abc", "-64", "0", "64", "4100"])
def test_sizes_without_loops_to_count_are_refused(size, capsys):
    with pytest.raises(SystemExit):
        main(["--", size])
    assert f"{size!r} is no multiple of 64 from 4096 on" in capsys.readouterr().err
