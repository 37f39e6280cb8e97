# The log and the threads that take it on: to the file, to the device, to the queues, and over a crash.
