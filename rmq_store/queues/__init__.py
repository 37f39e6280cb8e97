"""Where messages are: by queue (ConsumeQueue), by key and time (IndexFile)."""
