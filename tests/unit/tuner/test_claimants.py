"""A claim names its process; whether that is dead is known on its host alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tensorlang.tuner.storage import claimants

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="looks for processes in /proc"
)
TELLS = (
    "from tensorlang.tuner.storage import claimants; print(claimants.described()); "
    "import sys; sys.stdout.flush(); sys.stdin.read()"
)


def test_a_process_is_alive_until_it_ends() -> None:
    command = [sys.executable, "-c", TELLS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        said = other.stdout.readline()
        assert f"process {other.pid}, started" in said
        assert not claimants.is_dead(said)
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert claimants.is_dead(said)  # a zombie, too
    assert claimants.is_dead(said)


def test_a_later_process_with_the_same_id_is_another() -> None:
    said = claimants.described()
    assert not claimants.is_dead(said)
    assert claimants.described() != said  # another search of this process
    start = said.partition("started ")[2].partition(" ")[0]
    assert claimants.is_dead(said.replace(f"started {start} ", "started 1 "))


@pytest.mark.parametrize("place", ["boot", "namespace"])
def test_of_another_boot_or_container_nothing_is_known(place: str) -> None:
    said = claimants.described()
    here = claimants._place()
    boot, _, namespace = here.partition(":")
    other = f"other:{namespace}" if place == "boot" else f"{boot}:1"
    said = said.replace("started ", "started 1").replace(here, other)
    assert not claimants.is_dead(said)


def test_what_does_not_name_a_process_is_not_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not claimants.is_dead("")
    assert not claimants.is_dead("it is being measured by host, process 1, search a")
    monkeypatch.setattr(claimants, "_place", lambda: "")
    assert "started" not in claimants.described()
    assert not claimants.is_dead(claimants.described())
