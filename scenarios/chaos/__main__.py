"""Takes drains through a bad night, chapter by chapter, on brokers of its own.

After each chapter it prints what was lost, out of order or repeated. It ends with exit code 1 if a
law was broken.
"""

from scenarios.chaos.broker_chapters import BROKER_CHAPTERS, ON_THREE
from scenarios.chaos.chapters import CHAPTERS
from scenarios.chaos.night import play
from scenarios.chaos.nights.chapters import NIGHT_CHAPTERS

if __name__ == "__main__":
    chapters = CHAPTERS | BROKER_CHAPTERS | NIGHT_CHAPTERS
    play("python -m scenarios.chaos", __doc__, chapters, ON_THREE)
