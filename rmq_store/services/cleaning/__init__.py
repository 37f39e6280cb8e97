"""ROOM 13. What is old goes: log files by age, by disk usage and by hand; queues and index follow."""
