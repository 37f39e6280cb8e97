"""Options: one table (options.py), RocketMQ's names without effect (upstream.py), and how values are found (load.py:
`resolve`). Nothing is imported here, so that `python -m rmq_store.config.options` runs its module only once."""
