"""Entry point of ``python -m drainer``."""

from drainer.cli import main

main()
