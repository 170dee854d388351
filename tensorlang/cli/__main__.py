"""`python -m tensorlang.cli` is `tlang`."""

from tensorlang.cli import main

main()
