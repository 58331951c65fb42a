"""What more tasks gain on Spark: reading one partition."""
