"""Takes drains through a bad night, chapter by chapter, on brokers of its own.

After each chapter: what was lost, out of order or repeated. Ends with 1 when a law broke.
"""

from scenarios.chaos.broker_chapters import BROKER_CHAPTERS, ON_THREE
from scenarios.chaos.chapters import CHAPTERS
from scenarios.chaos.night import play
from scenarios.chaos.nights.chapters import NIGHT_CHAPTERS

if __name__ == "__main__":
    chapters = CHAPTERS | BROKER_CHAPTERS | NIGHT_CHAPTERS
    play("python -m scenarios.chaos", __doc__, chapters, ON_THREE)
