"""State stores: bytes in RocksDB or memory, with a write-back cache of values in front.

- ``access``              state stores as user code sees them: typed keys and values over a task's caches
- ``buffer``              the suppressed changes of a table, ordered by time
- ``cache``               the write-back cache between the operators of a task and its byte stores
- ``columns``             what restoring needs to know of a run of changelog records
- ``counts``              rows of a ``count()`` that a cache holds as columns instead of one entry each
- ``deletion``            the files of stores, deleted while no process has them open
- ``direct_access``       reads and writes of a processor's key-value store, for stores of the usual kind
- ``directory``           the directory in which one process keeps its state
- ``duplicates``          window stores that keep several records of one key and time, for stream-stream joins
- ``expiring``            a key-value store whose entries expire some time after their last update
- ``failures``            errors of RocksDB and the file system, as errors that say what to do next
- ``gathered_rows``       rows of a changelog that are gathered before they are written, in the order of keys
- ``key_order``           the order of keys, for batches that are written in it
- ``kinds``               every kind of state store in one table: how it is laid out, cached, logged, read and exported
- ``lru``                 a key-value store that keeps only the most recently used entries
- ``memory``              an in-memory store: lost with the process, and restored from its changelog as a whole
- ``ordered``             a key-value store that keeps its rows in the order of its key serde
- ``over_bytes``          base class of stores that wrap a byte store: the methods that they delegate
- ``passing_directory``   a temporary directory, for a task without a state directory (tests, backfills)
- ``private_files``       directories and files that only their owner may read
- ``rocksdb``             a store in RocksDB
- ``rocksdb_files``       how a store is kept in the files of RocksDB, and such files without their owner
- ``rocksdb_statistics``  RocksDB's integer properties, and its statistics, which are text with one line each
- ``session_cache``       the write-back cache of a session store: the sessions of each key, in a list ordered by end
                          and start
- ``sessions``            a session store: rows by key, end and start of session, kept for a retention time
- ``sliding_cache``       the cache of a sliding aggregation's window store: the windows of each key, in a list ordered by
                          start
- ``snapshots``           the in-memory state of a task beside its stores, for a task of another process that continues it
- ``store``               the interface of a state store at the level of bytes
- ``store_format``        what the files of a store depend on besides its name: noted beside them, and compared when
                          they are opened again
- ``timed``               stores whose operations are timed (``metrics.recording.level`` DEBUG and up)
- ``versioned``           a versioned store: the value of a key as of any time within the history retention
- ``versioned_cache``     typed versions between the operators of a task and its versioned store
- ``window_cache``        the cache of a window store: the rules are those of ``cache``, with one dictionary for each
                          window
- ``windowed``            a window store: rows by key and start of window, kept for a retention time
"""
