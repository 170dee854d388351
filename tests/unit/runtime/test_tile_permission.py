"""AMX is used where the system grants its registers."""

from __future__ import annotations

import platform
import sys

import pytest

from tensorlang import hardware, tile_permission

LINUX = """vendor_id : GenuineIntel
cpu family : 6
model : 173
flags : sse2 avx2 fma avx512f avx512bw avx512dq avx512vl amx_tile amx_bf16 amx_int8
"""


@pytest.mark.parametrize("answer", [0, -1])
def test_the_answer_decides(answer, monkeypatch):
    asked = []

    def call(*given):
        asked.append(given)
        return answer

    granted = tile_permission.granted
    monkeypatch.setattr(tile_permission, "granted", lambda: granted(call))
    found = hardware.usable(hardware._from_cpuinfo(LINUX))
    assert asked == [(158, 0x1023, 18)]
    assert ("amx_tile" in found.features) == (answer == 0)
    assert ("amx_bf16" in found.features) == (answer == 0)
    assert "avx512f" in found.features
    assert found.hides("amx-int8") == (answer != 0 and sys.platform == "linux")
    assert ("amx" in found.levels) == (answer == 0)


def test_processors_without_it_do_not_ask(monkeypatch):
    monkeypatch.setattr(tile_permission, "granted", lambda: pytest.fail("asked"))
    plain = hardware._from_cpuinfo(LINUX.partition(" amx")[0])
    assert hardware.usable(plain) == plain


def test_asking_this_system_is_harmless():
    """Where it has no tiles, it refuses."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        had = "amx_tile" in hardware.processor().features
        assert tile_permission.granted() == had
    else:
        assert not tile_permission.granted()
