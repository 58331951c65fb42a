"""A person's shell on a terminal of its own, in which TAB is pressed."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

SHOWN_WITHIN_S = 60.0  # If this takes longer, the shell hangs.
PROMPT = "ready> "
COMPLETES = 'eval "$(_DRAINER_COMPLETE=source_{shell} drainer)"'
BEGINS = {"bash": "", "zsh": "autoload -Uz compinit; compinit -u"}
WORDS = {"bash": ("bash", "--rcfile", ".bashrc", "-i"), "zsh": ("zsh", "-d", "-i")}
SHELLS = [shell for shell in BEGINS if shutil.which(shell)]


def press_tab(shell: str, folder: Path, bootstrap: str, line: str, shows: str) -> str:
    """Type a line and TAB into a shell, and return what is on its screen once it shows the words.

    The shell runs in ``folder``, with the drainer of this Python on its path, for the brokers at
    ``bootstrap``. Raises TimeoutError with the screen if it does not show them.
    """
    lines = (BEGINS[shell], COMPLETES.format(shell=shell), f"PS1='{PROMPT}'")
    (folder / f".{shell}rc").write_text("\n".join(lines), encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = {"HOME": str(folder), "ZDOTDIR": str(folder), "PATH": path, "TERM": "dumb"}
    brokers = {"DRAINER_BOOTSTRAP_SERVER": bootstrap}
    master, slave = os.openpty()
    with subprocess.Popen(
        WORDS[shell],
        cwd=folder,
        env=os.environ | home | brokers,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    ) as process:
        os.close(slave)
        try:
            _read_until(master, PROMPT)
            os.write(master, f"{line}\t".encode())
            return _read_until(master, shows)
        finally:
            process.kill()
            os.close(master)


def _read_until(terminal: int, shows: str) -> str:
    screen, end_s = "", time.monotonic() + SHOWN_WITHIN_S
    while shows not in screen:
        if not select.select([terminal], [], [], max(0.0, end_s - time.monotonic()))[0]:
            raise TimeoutError(f"the shell does not show {shows!r}: {screen!r}")
        screen += os.read(terminal, 65536).decode(errors="replace")
    return screen
