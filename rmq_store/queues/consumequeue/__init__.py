"""ConsumeQueue files: where the messages of each queue are."""
