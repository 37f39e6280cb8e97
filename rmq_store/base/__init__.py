"""What every other wing stands on: system calls, files of the log, the machine, a histogram."""
