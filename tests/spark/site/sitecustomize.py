"""Each Python process that the tests' Spark starts has this on its path, and takes pyspark from where it is installed.

Spark puts its pyspark.zip, the same code, in front; Python keeps nothing compiled of an archive, so that every process would
compile pyspark anew: half a second of each of a dozen.
"""
import sys

sys.path.sort(key=lambda place: "/pyspark/python/lib/" in place)
