"""Takes pictures of the SQL tab of Spark during a drain."""
