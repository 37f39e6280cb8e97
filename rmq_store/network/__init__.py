"""A broker's network thread: it reads and answers frames without the GIL, and passes on what Python has to answer."""
