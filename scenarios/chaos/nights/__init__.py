"""Chapters of a random night: backlogs, faults and kills by chance, one file a chapter."""
