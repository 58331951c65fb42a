"""Records that all folders use: settings, plans, statuses, and how they are written as JSON."""
