"""The walks of the architecture page are as measured: ``python -m scenarios.walks --write``."""

from __future__ import annotations

import re

import pytest

from scenarios.walks import PAGE, SEARCHES, files_that_name, trace_a_message

DIFFERENT_MOST = 2  # modules of walk a: which calls fall between two checkpoints varies


def listed(walk: str) -> set[str]:
    (row,) = re.findall(rf"^{walk}\. .* \| \d+: (.*)$", PAGE.read_text(), re.M)
    return set(re.findall(r"`([^`]+)`", row))


@pytest.mark.parametrize("walk", SEARCHES)
def test_the_page_lists_the_files_that_name_it(walk: str) -> None:
    _, folders, names = SEARCHES[walk]
    assert listed(walk) == set(files_that_name(names, folders)), "write the page again"


@pytest.mark.long
def test_the_page_lists_the_modules_that_a_message_leads_through(bootstrap: str) -> None:
    assert len(listed("a") ^ set(trace_a_message(bootstrap))) <= DIFFERENT_MOST
