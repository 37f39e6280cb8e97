"""Who is measured over a network, and at which rates: for drivers, targets and pages. Imports nothing that has to be built."""
OURS = "rmq_store"                      # as rmq_store.bench.case has it
POOL = "rmq_store-pool"                 # with write_path=pool
BARE = "bare"                           # no store: what loopback, or the caller's own work, leaves
PAIR = "bare pair"                      # a master and a slave without a store: bench/load/bare_pair.c
SLEEPS = "sleeps"                       # this library, whose producer sleeps until its puts are due
REAL = {"rocketmq-4.9": "4.9.8", "rocketmq-5.x": "5.3.3"}
SUBJECTS = (OURS, *REAL)
RATES = (20_000, 100_000)               # puts a second of bench/load/replication.py's lag
