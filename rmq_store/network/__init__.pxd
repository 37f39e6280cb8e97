# Frames without the GIL.
