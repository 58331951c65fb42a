"""Runs ``drainer`` as it would be without its journal. The difference is what the journal costs.

What has finished is still noted in memory, and then thrown away.
"""

from __future__ import annotations

from drainer.cli import main
from drainer.core.dispatch import Dispatcher
from drainer.engine.checkpointer import Checkpointer
from drainer.store.plan_file import PlanFile


def _forget(checkpointer: Checkpointer) -> None:
    account = checkpointer.account
    assert isinstance(account, Dispatcher)
    for ledger in account.ledgers.values():
        ledger._changed_finished.clear()  # noqa: SLF001
        ledger._changed_partial.clear()  # noqa: SLF001


def _begin_none(_file: PlanFile, _drain_id: str, _generation: int) -> None:
    pass


Checkpointer.note = _forget  # type: ignore[method-assign, assignment]
PlanFile.start_journal = _begin_none  # type: ignore[method-assign, assignment]

if __name__ == "__main__":
    main()
