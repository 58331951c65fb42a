"""The table of deliberate mutants stays true to the code and the tests that it names."""

from __future__ import annotations

from collections import Counter

from mutants import MUTANTS, ROOT, Mutant, mutated


def ensure_useful(mutant: Mutant) -> None:
    applied = mutated(mutant)
    assert applied is not None, f"{mutant.name}: not once in the only {mutant.place}"
    compile(applied[1], applied[0], "exec")
    for test in mutant.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text("utf-8")
        assert not name or f"def {name}(" in text, f"{mutant.name}: {test}"


def test_each_mutant_applies_and_its_tests_are_there() -> None:  # one test: it reads all files
    for mutant in MUTANTS:
        ensure_useful(mutant)
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
