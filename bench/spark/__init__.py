"""What Spark makes of a store, as ratios to what Spark makes of the same messages elsewhere."""
