"""Shows how near an estimate is to the drain that follows it."""
