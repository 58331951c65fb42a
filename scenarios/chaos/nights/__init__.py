"""Chapters of random nights, one in each file: their backlogs, faults and kills are drawn by
chance."""
