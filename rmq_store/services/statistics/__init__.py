"""Statistics: what a store has done and how long it took; RocketMQ's runtime info; measured puts."""
