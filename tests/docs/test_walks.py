"""The walks of the architecture page are as measured: ``python -m scenarios.walks --write``."""

from __future__ import annotations

import re

import pytest

from scenarios.walks import PAGE, SEARCHES, files_that_name, trace_a_message

DIFFERENT_MOST = 2  # modules of walk a: which calls fall between two checkpoints varies


def listed(walk: str) -> set[str]:
    (row,) = re.findall(rf"^{walk}\. .* \| \d+: (.*)$", PAGE.read_text(), re.M)
    return set(re.findall(r"`([^`]+)`", row))


def test_the_page_lists_the_files_that_name_it() -> None:
    named = {walk: set(files_that_name(names, of)) for walk, (_, of, names) in SEARCHES.items()}
    assert {walk: listed(walk) for walk in SEARCHES} == named, "write the page again"


@pytest.mark.long
def test_the_page_lists_the_modules_that_a_message_leads_through(bootstrap: str) -> None:
    assert len(listed("a") ^ set(trace_a_message(bootstrap))) <= DIFFERENT_MOST
