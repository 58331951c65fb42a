"""Pages of estimates and inspections."""
