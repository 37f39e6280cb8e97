# Inner batches: several messages in one record, for topics with batch queues.
from rmq_store.access.writer._put_many cimport StorePutMany


cdef class StorePutInner(StorePutMany):
    cdef set batch_names            # topics that have batch queues, as config/topics.json says: str
    cdef object batch_dir
    cdef object batch_file_size
