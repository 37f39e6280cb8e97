"""Jobs over whole stores. Heavy byte work is native, inside the tasks; Spark plans, retries and collects small rows."""
from rmq_store.spark.jobs.audit import AuditReport, audit

__all__ = ["AuditReport", "audit"]
