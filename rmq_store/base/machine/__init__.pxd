# The machine under a store: its device, its memory, what follows for sizes, its threads.
