"""The table of deliberate mutants stays true to the code and the tests that it names."""

from __future__ import annotations

from collections import Counter

import pytest

from mutants import MUTANTS, ROOT, Mutant, mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_its_tests_are_there(mutant: Mutant) -> None:
    applied = mutated(mutant)
    assert applied is not None, f"its lines must stand once in the only {mutant.place}"
    compile(applied[1], applied[0], "exec")
    for test in mutant.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text("utf-8")
        assert not name or f"def {name}(" in text, test


def test_mutants_have_names_of_their_own() -> None:
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
