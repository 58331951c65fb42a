"""Runs ``drainer demo``."""

import sys

from drainer.cli import app

app(["demo", *sys.argv[1:]])
