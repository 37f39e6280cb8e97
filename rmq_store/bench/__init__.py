"""Benchmarks: named workloads on a store, and on its peers, one process a run. `rmqstore bench` is the way in.

case.py says what one run is, runner.py gives it a directory and a process of its own (worker.py); puts.py, reads.py and
mixed.py are the workloads, peers.py, fio.py and java.py the others to be measured beside; figures.py turns runs into what is
shown. Control plane: no room imports this package.
"""
