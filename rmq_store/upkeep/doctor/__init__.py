"""What a machine means for a store."""
