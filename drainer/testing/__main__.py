"""The other process that split is tried in: ``python -m drainer.testing FOLDER``."""

import sys
from pathlib import Path

from drainer.errors import DrainerError
from drainer.testing.account import answer

try:
    answer(Path(sys.argv[1]), float(sys.argv[2]))
except DrainerError as error:
    sys.exit(str(error))
