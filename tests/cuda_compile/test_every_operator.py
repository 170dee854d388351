"""Every operator compiles for three architectures, and spills no register.

All of them for one architecture, and for the others with `-m every_architecture`, as
`.ci/run` does; `test_operators` has one of each family for all three.
"""

import pytest

from tensorlang import targets
from tensorlang.ops.registry import operators

LIBRARY = [op for op in operators() if op.module.startswith("tensorlang.")]
USUAL = "sm_90a"
OTHERS = [arch for arch in targets.ARCHITECTURES if arch != USUAL]


def builds(op, arch):
    kernel = op.build(op.default, f"cuda:{arch}")
    assert kernel.artifact.object_code[:4] == b"\x7fELF"
    assert 0 < kernel.resources["registers"] <= 255
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["shared_bytes"] <= targets.ARCHITECTURES[arch]


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.id)
def test_of_every_operator(op):
    builds(op, USUAL)


@pytest.mark.every_architecture
@pytest.mark.parametrize("arch", OTHERS)
@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.id)
def test_of_the_other_architectures(op, arch):
    builds(op, arch)


def test_there_are_so_many_operators():
    assert len(LIBRARY) > 150
