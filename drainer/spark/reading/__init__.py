"""Reading on Spark: slices, slices, and the topic as a data source."""
