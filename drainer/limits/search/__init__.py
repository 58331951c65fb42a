"""Points of traffic, what a trial showed, and the search for a boundary; pure."""
