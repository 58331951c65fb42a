"""Reading on Spark: waves, slices, and the topic as a data source."""
