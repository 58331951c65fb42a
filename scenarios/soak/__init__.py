"""A drain that runs for long: memory, files, threads and what it keeps on disk, over time."""
