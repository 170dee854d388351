"""A PostgreSQL server of the test's own, on a socket in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))  # Debian's, by version
USER = "postgres"
OPTIONS = ("-c", "listen_addresses=", "-c", "max_connections=200")


# waits for the end of whoever started the server, however it comes
WATCH = """
cat; first=$(head -n 1 data/postmaster.pid); kill -QUIT $first
while kill -0 $first; do sleep 0.1; done; rm -rf "$PWD"
"""


class Server:
    """A server that can be stopped, killed and started again.

    It ends, and its folder goes, with the process that made it.
    """

    def __init__(self, bin: Path, folder: Path) -> None:
        self.bin, self.folder = bin, folder
        self.user = pwd.getpwnam(USER).pw_uid if os.getuid() == 0 else None
        if self.user is not None:  # initdb refuses to be root's
            os.chown(folder, self.user, -1)
        self._run("initdb", "-D", folder / "data", "-U", USER, "-A", "trust")
        self._watch = subprocess.Popen(
            ["sh", "-c", WATCH],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self.folder}"

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self.bin / program), *map(str, arguments)]
        subprocess.run(
            command,
            cwd=self.folder,
            user=self.user,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _control(self, *arguments: object) -> None:
        log = self.folder / "log"
        self._run("pg_ctl", "-D", self.folder / "data", "-w", "-l", log, *arguments)

    def start(self, options: Sequence[str] = OPTIONS) -> None:
        said = " ".join([*options, "-k", str(self.folder)])
        self._control("start", "-o", said)

    def close(self) -> None:
        """Stop it if it runs, and remove its folder."""
        self._watch.communicate()

    def stop(self) -> None:
        """At once, without a checkpoint: the next start recovers."""
        self._control("stop", "-m", "immediate")

    def start_recovering(self) -> None:
        """Start, and refuse connections until `recover`."""
        (self.folder / "go").unlink(missing_ok=True)
        data = self.folder / "data"
        waits = f"until test -e {self.folder}/go; do sleep 0.1; done; false"
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"restore_command = '{waits}'\n")
        (data / "recovery.signal").touch()
        said = " ".join([*OPTIONS, "-k", str(self.folder)])
        log = self.folder / "log"
        self._run("pg_ctl", "-D", data, "-W", "-l", log, "start", "-o", said)

    def recover(self) -> None:
        """End a recovery."""
        (self.folder / "go").touch()
        for _ in range(600):
            with contextlib.suppress(subprocess.CalledProcessError):
                self._run("pg_isready", "-h", self.folder)
                return
            time.sleep(0.1)
        raise TimeoutError("the server does not recover")

    def kill(self) -> None:
        first = (self.folder / "data" / "postmaster.pid").read_text().splitlines()[0]
        os.kill(int(first), signal.SIGKILL)


def missing() -> str:
    """What a server lacks here; else empty."""
    if not FOLDERS:
        return "PostgreSQL is not installed (Debian: postgresql)"
    if os.getuid() == 0 and USER not in {entry.pw_name for entry in pwd.getpwall()}:
        return f"there is no user {USER} to run PostgreSQL as"
    return ""


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A running server; the path of a socket has to be short."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if lacking := missing():
        pytest.skip(lacking)
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    started = Server(FOLDERS[-1], folder)
    started.start()
    yield started
    started.close()


@pytest.fixture
def url(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The URL of the server; what it does not take is spooled to the test's folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return server.url
