"""Replication: a master that serves slaves by RocketMQ's HA protocol, and a slave that follows a master."""
