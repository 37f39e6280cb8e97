# Verbs. Each sets up what it needs (tools/bootstrap); ARGS="..." goes to what is run.
PYTHON := .venv/bin/python

.PHONY: build debug check test demo test-crash test-failover test-promises test-schedules test-power test-races test-sanitized test-bare test-interop \
        test-conformance test-slow test-spark test-spark-slow fuzz fuzz-campaign fuzz-frames fuzz-net figures bench bench-full bench-micro soak docs wheel clean

build:
	tools/bootstrap

debug:
	RMQ_STORE_DEBUG=1 tools/bootstrap --dev

check:
	tools/bootstrap --dev
	tools/check

test:
	tools/test $(ARGS)

demo:
	tools/demo $(ARGS)

test-crash:
	tools/bootstrap --dev
	$(PYTHON) -m pytest -m crash $(ARGS)

# RMQ_SCHEDULES (60) chosen orders of I/O calls for each scenario and configuration; RMQ_SEED chooses others.
test-schedules:
	tools/bootstrap --dev
	$(PYTHON) -m pytest -m "" tests/trace tests/crash/test_states_producers.py $(ARGS)

# kill -9 of a master with puts in flight, and promotion of its slave: ARGS="--cycles 10000 --seed 2 --mode master". An hour.
test-failover:
	tools/bootstrap --dev
	$(PYTHON) -m tests.replication.failover $(or $(ARGS),--cycles 10000)

# One store with all features, random sequences with kills, cuts, full disks, clocks that jump and the rest: ARGS="--seeds 1-500
# --steps 40". A minute for a hundred seeds; a fault is printed with the shortest sequence that shows it.
test-promises:
	tools/bootstrap --dev
	$(PYTHON) -m tests.promises $(ARGS)

# Power cuts below real ext4 and XFS; root, FUSE 3 (libfuse3-dev), loop devices. RMQ_POWER_STATES (2000) and RMQ_SEED say how many
# states, and which; a kept recording can be judged again: python -m tests.power.campaign --replay DIR.
test-power:
	tools/bootstrap --dev
	$(PYTHON) -m pytest -m "" tests/power -s $(ARGS)

# Under the thread sanitizer; a build of its own, under build/races.
test-races:
	tools/bootstrap --dev
	tools/races $(ARGS)

# Under the address and the undefined-behaviour sanitizer; a build of its own, under build/sanitized.
test-sanitized:
	tools/bootstrap --dev
	tools/sanitized $(ARGS)

# README's two commands on bare Debian systems; ARGS="13 -q -n 2" is one of them, with arguments for its tests. Needs root.
test-bare:
	tools/bare $(ARGS)

test-interop:
	tools/bootstrap --dev
	$(PYTHON) -m pytest -m interop $(ARGS)

# RocketMQ's own integration tests against three brokers of ours, then against three of Java; java and mvn; half an hour.
test-conformance:
	tools/bootstrap --dev
	$(PYTHON) -m pytest -m "" tests/conformance -s $(ARGS)

# What the tests leave out: more of the same (Spark's have their own verb).
test-slow:
	tools/bootstrap --dev
	$(PYTHON) -m pytest -m "slow and not spark" $(ARGS)

test-spark:
	tools/bootstrap --dev
	tools/bootstrap --spark
	$(PYTHON) -m pytest -m "not slow" tests/spark $(ARGS)

# On a cluster of two processes and through Spark Connect, from the wheel that make wheel has left in dist/; speculation, killed
# drivers, spark-submit; and what Spark has rebuilt, read by the real RocketMQ.
test-spark-slow:
	tools/bootstrap --dev
	tools/bootstrap --spark-connect
	$(PYTHON) -m pytest -m "slow or interop" tests/spark tests/interop/test_rebuilt_by_spark.py $(ARGS)

# RMQ_FUZZ_SECONDS (120) and RMQ_SEED say how long and which cases. fuzz-campaign: 5,000 damaged stores, what they found sorted by
# cause (ARGS="--seed 2 --cases 500"); an hour. RMQ_FUZZ_PYTHON and RMQ_FUZZ_PRELOAD: another interpreter, a sanitizer's library.
fuzz:
	tools/bootstrap --dev
	$(PYTHON) -m pytest -m "" tests/fuzz -s $(ARGS)

# RMQ_FRAMES (5 million) mutated frames of remoting through the decoder, under the address and undefined-behaviour sanitizers.
fuzz-frames:
	RMQ_FRAMES=$${RMQ_FRAMES:-5000000} $(MAKE) -s -C native/tests KINDS=asan TESTS=frame_test

# RMQ_NET_STEPS (2 million) steps of bad peers against the network thread, over real sockets, under the same sanitizers.
fuzz-net:
	RMQ_NET_STEPS=$${RMQ_NET_STEPS:-2000000} $(MAKE) -s -C native/tests KINDS=asan TESTS=net_test

fuzz-campaign:
	tools/bootstrap --dev
	$(PYTHON) -m tests.fuzz.campaign --minimise $(ARGS)

# Every figure of the pages, in one run of this commit, which has to be clean; under an hour on an idle machine. DIR is on the disk
# in question, with 14 GiB free. Ctrl-C stops it, and the same command continues.
figures:
	tools/figures --dir $(or $(DIR),$(error make figures DIR=directory-on-the-disk-to-be-measured)) $(ARGS)

# Ten minutes on an idle machine; ARGS="--dir DIR" for another disk than that of /var/tmp. bench-full takes hours.
bench:
	tools/bootstrap --dev
	$(PYTHON) -m bench.suite $(ARGS)

bench-full:
	tools/bootstrap --dev
	$(PYTHON) -m bench.suite --full $(ARGS)

bench-micro:
	tools/bootstrap --dev
	mkdir -p build
	for run in 1 2; do $(PYTHON) -m pytest bench/micro --benchmark-only --benchmark-json=build/micro-$$run.json -q || exit 1; done
	$(PYTHON) -m bench.micro.gate build/micro-1.json build/micro-2.json $(ARGS)

# RMQ_SOAK_SECONDS (600) of puts at full rate with cleaning on, over mmap and then over the pool; ARGS="--dir DIR --out FILE".
# A few GiB of disk.
soak:
	tools/bootstrap --dev
	$(PYTHON) -m bench.load.soak $(ARGS)

wheel:
	tools/wheel

# The pages as a site, in build/site/html. Fails where a link leads nowhere.
docs:
	tools/bootstrap --docs
	$(PYTHON) tools/make_site.py

# The environment (.venv) stays; remove it by hand to begin from nothing.
clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find rmq_store -name '_*.so' -delete
	find rmq_store tests tools bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
