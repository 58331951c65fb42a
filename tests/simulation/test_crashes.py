"""The laws under kill -9 at any step, in virtual time, for a thousand seeds.

``DRAINER_SEED=123 pytest tests/simulation`` replays one of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from virtual_drain import VirtualDrain

from drainer.core import lanes, ledger

SEEDS = 1_200
CHUNKS = 12


def seeds_of(chunk: int) -> range:
    if "DRAINER_SEED" in os.environ:
        seed = int(os.environ["DRAINER_SEED"])
        return range(seed, seed + (chunk == 0))
    return range(chunk * SEEDS // CHUNKS, (chunk + 1) * SEEDS // CHUNKS)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_laws_hold_whenever_the_process_is_killed(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No power is lost here, and a disk would take more time than all the rest.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    if chunk % 2:  # small, so that a few messages come to purge and to clear
        monkeypatch.setattr(ledger, "PURGE_MIN", 1)
        monkeypatch.setattr(lanes, "STALE_MIN", 1)
    crashes = torn = 0
    for seed in seeds_of(chunk):
        drain = VirtualDrain(seed, tmp_path)
        try:
            drain.run()
        except Exception as error:
            raise AssertionError(
                f"seed {seed} (DRAINER_SEED={seed} pytest tests/simulation), life"
                f" {drain.crashes + 1}: {type(error).__name__}: {error}"
            ) from error
        crashes += drain.crashes
        torn += drain.torn
        for path in tmp_path.iterdir():
            path.unlink()
    if "DRAINER_SEED" not in os.environ:
        assert crashes > 100, "the simulation kills too seldom to say anything"
        assert torn > 20, "no record was torn"
