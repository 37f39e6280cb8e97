"""The one I/O table through which every system call on a store goes."""
