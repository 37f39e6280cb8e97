# %% [markdown]
# A tour of a store with Spark: run it whole (python docs/examples/spark_tour.py STORE out.png) or cell by cell in a notebook.
# It needs pip install rmq_store[spark] matplotlib. The store is only read; its broker may be running.

# %%
import sys

import rmq_store.spark as rs
from rmq_store.spark import jobs

store = sys.argv[1] if len(sys.argv) > 1 else "store"
picture = sys.argv[2] if len(sys.argv) > 2 else "store.png"
spark = rs.local_session("tour")

# %% What is there? Views cost little: they read queue files and heads, not messages.
rs.read_store(spark, store, view="queues").orderBy("topic", "queueId").show(20, truncate=False)
rs.read_store(spark, store, view="files").groupBy("kind").sum("size").show()

# %% Messages, with the columns that are wanted and no others.
messages = rs.scan(spark, store, columns=["topic", "storeSize", "storeTimestamp", "tags"])
messages.createOrReplaceTempView("messages")
spark.sql("SELECT topic, count(*) AS messages, sum(storeSize) AS bytes FROM messages GROUP BY topic ORDER BY bytes DESC").show()

# %% Is every record whole?
report = jobs.audit(spark, store)
print(f"{report.records} records, {len(report.findings)} findings")

# %% Bytes a second of each topic, as a picture.
rates = spark.sql("""SELECT topic, date_trunc('second', storeTimestamp) AS second, sum(storeSize) / 1024 / 1024 AS mib
                     FROM messages GROUP BY 1, 2 ORDER BY 2""").collect()

import matplotlib  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

figure, axes = plt.subplots(figsize=(10, 4))
for topic in sorted({r.topic for r in rates}):
    axes.plot([r.second for r in rates if r.topic == topic], [r.mib for r in rates if r.topic == topic], "o-", label=topic)
axes.set_ylabel("MiB/s")
axes.legend()
figure.autofmt_xdate()
figure.savefig(picture)
print(f"saved {picture}")
spark.stop()
