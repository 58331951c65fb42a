"""Sessions of Spark: how they start, what they have, and what their errors mean."""
