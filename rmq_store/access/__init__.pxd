# What a call meets: putting, reading, waiting, and many at once.
