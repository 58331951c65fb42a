"""Tries each case against the installed command, and prints a table: case, before, now.

It ends with exit code 1 if trust is broken in a case.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scenarios.brokers import Broker
from scenarios.trust.case import Broken, Case, Stage
from scenarios.trust.cases import all_cases


def attempt(case: Case, stage: Stage) -> tuple[bool, str]:
    """Try a case. Return whether it is sound, and what happened."""
    stage.folder.mkdir()
    try:
        return True, case.attempt(stage)
    except Broken as broken:
        return False, str(broken)
    except Exception as error:  # The other cases are still tried.
        return False, f"{type(error).__name__}: {error}"
    finally:
        stage.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scenarios.trust", description=__doc__)
    parser.add_argument(
        "--case", action="append", help="try only the case of this name; repeat for several"
    )
    wanted = parser.parse_args().case
    cases = [case for case in all_cases() if not wanted or case.attempt.__name__ in wanted]
    table = Table("name", "case", "before", "now", "", title="trust", show_lines=True)
    broken = 0
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "broker") as broker:
        for case in cases:
            print(f"{case.id} …", file=sys.stderr, flush=True)
            sound, now = attempt(case, Stage(broker, Path(folder) / case.id))
            broken += not sound
            table.add_row(case.id, case.title, case.before, now, "sound" if sound else "BROKEN")
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    print(f"{len(cases) - broken} of {len(cases)} cases are sound")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
