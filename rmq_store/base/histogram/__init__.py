"""The histogram of durations that benchmarks and statistics share."""
