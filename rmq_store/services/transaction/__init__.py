"""Half messages, their decisions, and the check-back (RocketMQ: the broker's transaction.queue)."""
