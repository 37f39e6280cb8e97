"""Found by Spark, which imports every top-level package pyspark_* that is installed and takes DefaultSource as a data source.

An error here would break that look-up for everybody: where something is missing there is no DefaultSource, and asking for the
format says that it was not found. `rmq_store.spark.register(spark)` then says why.
"""
try:
    from rmq_store.spark.datasource import RocketMQStoreDataSource as DefaultSource
except Exception:
    pass
else:
    __all__ = ["DefaultSource"]
