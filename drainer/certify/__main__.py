"""The other process that split is tried in: ``python -m drainer.certify FOLDER``."""

import sys
from pathlib import Path

from drainer.certify.account import answer
from drainer.errors import DrainerError

try:
    answer(Path(sys.argv[1]), float(sys.argv[2]))
except DrainerError as error:
    sys.exit(str(error))
