"""State stores: bytes in RocksDB or memory, behind a write-back cache of values.

- ``access``              state stores as user code sees them: typed keys and values over a task's caches
- ``buffer``              the changes that a suppression holds back, in the order of their times
- ``cache``               the write-back cache that stands between the operators of a task and its byte stores
- ``columns``             what restoring needs to know of a run of changelog records
- ``counts``              rows of a ``count()`` that a cache holds as columns instead of an entry each
- ``directory``           the directory in which one process keeps its state
- ``duplicates``          stores of windows that keep several records of one key and time: what stream-stream joins
                          remember
- ``expiring``            a key-value store whose entries expire some time after their last update
- ``failures``            what RocksDB and the file system say when they fail, as errors that say what to do next
- ``kinds``               every kind of state store in one table: how it is laid out, cached, logged, read and exported
- ``lru``                 a key-value store that keeps the entries used last, and no more than a number of them
- ``memory``              a store in memory: gone with the process, and restored from its changelog as a whole
- ``ordered``             a key-value store that keeps its rows in the order of its key serde
- ``over_bytes``          what stores that lie over a store of bytes leave to it
- ``passing_directory``   a directory for what is not to stay: that of a task which has none in a state directory
                          (tests, backfills)
- ``private_files``       directories and files that nobody else on the machine may read
- ``rocksdb``             a store in RocksDB
- ``rocksdb_statistics``  what RocksDB says of itself: integer properties, and statistics that are a text with a line
                          for each
- ``session_cache``       the write-back cache of a session store: the sessions of each key, in a list ordered by end
                          and start
- ``sessions``            a store of sessions: rows by key, end and start of session, kept for a retention time
- ``store``               what a state store is at the level of bytes
- ``store_format``        what the files of a store depend on besides its name: noted beside them, and compared when
                          they are opened again
- ``timed``               stores whose operations are timed (``metrics.recording.level`` DEBUG and up)
- ``versioned``           a store of versions: what a key's value was at a time, for a history retention
- ``versioned_cache``     typed versions between the operators of a task and its versioned store
- ``window_cache``        the cache of a window store: the rules are those of ``cache``, with one dictionary for each
                          window
- ``windowed``            a store of windows: rows by key and start of window, kept for a retention time
"""
