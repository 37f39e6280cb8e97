"""The bytes of one message: pure functions, no clock, no I/O."""
