"""Takes drains on Spark through a bad night, in which workers, drivers and Spark itself are
killed."""
