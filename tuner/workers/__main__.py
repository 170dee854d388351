"""A worker's process, as the tuner starts it; see `worker`."""

from __future__ import annotations

from tensorlang import lazy
from tensorlang.gc_pause import collect_rarely

with lazy.modules(__name__):  # when garbage is collected rarely
    from tensorlang.tuner.workers import worker

if __name__ == "__main__":
    collect_rarely()
    worker.main()
