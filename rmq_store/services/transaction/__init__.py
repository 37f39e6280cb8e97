"""Half messages, their decisions, and the check-back (upstream: the broker's transaction.queue)."""
