"""ROOM 11. Answers: messages as views, by queue, key, time and id."""
