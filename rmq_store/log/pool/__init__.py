"""TransientStorePool: memory that is taken once, at open, and mapped twice."""
