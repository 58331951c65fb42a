"""Shows whether ``--concurrency auto`` finds what the best fixed value would have been."""
