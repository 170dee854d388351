"""`python -m benchmarks.gpu.setup SITE WORK [WHEELS] [--pycuda=KEPT]`: install.

KEPT is where a PyCUDA wheel built here is kept for later runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.gpu import environment


def main() -> None:
    """Install; exit with 1 and a message if a package is unavailable."""
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    site, work = map(Path, names[:2])
    wheels = Path(names[2]) if len(names) > 2 else None
    asked = [a.partition("=")[2] for a in sys.argv if a.startswith("--pycuda=")]
    try:
        said = environment.install(site, wheels)
        for kept in map(Path, asked):
            said += environment.pycuda(site, wheels, work, kept)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as problem:
        sys.exit(str(problem))
    print("\n".join(said))


if __name__ == "__main__":
    main()
