"""Each exit code has its line in docs/reference/exit-codes.md."""

from __future__ import annotations

import re
from pathlib import Path

from drainer import errors

PAGE = (Path(__file__).parents[2] / "docs/reference/exit-codes.md").read_text()


def test_each_exit_code_is_on_the_page_and_no_other() -> None:
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    rows = [int(code) for code in re.findall(r"^(\d+) \|", PAGE, re.MULTILINE)]

    assert rows == sorted(codes)
