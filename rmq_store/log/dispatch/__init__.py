"""From the log into queues and index; following another process."""
