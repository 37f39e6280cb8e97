# What an open store does by itself, or for groups of consumers.
