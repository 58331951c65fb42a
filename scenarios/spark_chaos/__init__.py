"""A drain on Spark through a bad night: workers, drivers and Spark itself killed."""
