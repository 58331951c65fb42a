"""The pure part of ``drainer limits``: trials, verdicts, and the search for a boundary."""
