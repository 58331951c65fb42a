"""Programs in Go that tests need. The compiler comes with drainer's extra ``long``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock
from platformdirs import user_cache_path

from needs import missing


def compiler() -> str:
    """Path of ``go``; without one the test is skipped, and in CI it fails."""
    return (
        shutil.which("go", path=Path(sys.executable).parent)
        or shutil.which("go")
        or missing("there is no Go (hint: pip install 'drainer[long]')")
    )


def cached(module: str, version: str) -> Path:
    """Where a public program is, once it was built."""
    return user_cache_path("drainer") / "tests" / f"{module.rpartition('/')[2]}-{version}"


def built(module: str, version: str) -> str:
    """Path of a public program. It is built once, which takes minutes."""
    there = cached(module, version)
    there.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{there}.lock"), TemporaryDirectory(dir=there.parent) as folder:
        if not there.exists():
            words = [compiler(), "install", f"{module}@{version}"]
            subprocess.run(words, env=os.environ | {"GOBIN": folder}, check=True)
            next(Path(folder).iterdir()).rename(there)
    return str(there)
