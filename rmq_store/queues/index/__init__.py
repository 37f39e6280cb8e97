"""Index files: where the messages of each key are."""
