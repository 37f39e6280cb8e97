"""Deleting what is old: log files by age, by disk usage and by hand; queues and index follow."""
