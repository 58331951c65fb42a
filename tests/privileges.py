"""Code run as a user whom files and folders can be closed to."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

UNPRIVILEGED = 65534
UNPRIVILEGED_NAME = pwd.getpwuid(UNPRIVILEGED).pw_name
for_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@contextmanager
def without_privileges() -> Iterator[None]:
    """To root, every folder can be written to."""
    if os.geteuid():
        yield
        return
    os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        os.seteuid(0)
