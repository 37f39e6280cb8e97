"""Reading: messages as views, by queue, key, time and id."""
