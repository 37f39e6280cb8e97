"""Jobs over whole stores. Heavy byte work is native, inside the tasks; Spark plans, retries and collects small rows."""
from rmq_store.spark.jobs.audit import AuditReport, audit
from rmq_store.spark.jobs.export import Exported, export, verify_export
from rmq_store.spark.jobs.index import RebuiltIndex, rebuild_index
from rmq_store.spark.jobs.queues import RebuiltQueues, rebuild_queues
from rmq_store.spark.jobs.tables import compact, diff, key_statistics, merge, replay, retention, topic_statistics

__all__ = ["AuditReport", "Exported", "RebuiltIndex", "RebuiltQueues", "audit", "compact", "diff", "export", "key_statistics",
           "merge", "rebuild_index", "rebuild_queues", "replay", "retention", "topic_statistics", "verify_export"]
