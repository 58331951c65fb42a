"""One sub-key with a large share of the work: what taking the hottest lane first gains."""
