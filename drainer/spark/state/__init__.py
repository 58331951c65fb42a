"""The state of a drain on Spark: what its driver and its tasks write for each other."""
