"""The put methods: from Python arguments to the log, and back with a result."""
