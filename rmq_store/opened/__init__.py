"""An open store as a whole: how it opens, what it tells, its control thread, how it ends."""
