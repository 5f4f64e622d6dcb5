"""The processing thread: poll, process, commit; and the threads and processes around it.

- ``assembly``          creates one processing thread from the configuration: tasks, committer, membership, loop,
                        queries
- ``bundled_broker``    the bundled broker as a process of its own: found if it runs, else started
- ``commit``            commits at least once
- ``drop_log``          logs which records were dropped and why: at most one line per task and reason every ten seconds,
                        with the count
- ``exactly_once``      commits exactly once (KIP-447): results, changelogs and input offsets in one transaction
- ``failing_version``   what a version that fails during an upgrade says first
- ``failures``          what is committed when the processing thread ends with an error
- ``group_facts``       an application's group as the cluster describes it: one value for both group protocols
- ``group_protocol``    the protocol with which an instance joins its group, for ``group.protocol=auto``
- ``health``            whether an instance is alive and ready, and if not, why: as text for logs, probes and users
- ``html_table``        tables for notebooks, as HTML
- ``instance_metrics``  all metrics of one instance, computed on request
- ``later_values``      whether this version can read what a later one has left in its state directory, after a rollback
- ``left_records``      refuses a version that would leave records in flight unread, where no coordinator looks after them
- ``lifecycle``         an application's decisions about its own life: failures, and how it leaves
- ``memory``            the budget of ``cache.max.bytes``: how it is divided, and what is used
- ``meter``             what the processing thread counts about itself: plain integers, updated once per iteration,
                        never per record
- ``metrics``           metrics under Kafka Streams' names, computed on request from the runtime's own counters
- ``notebook``          a running application in a notebook: a table of its tasks that follows what they do
- ``old_windows``       warns that the broker deletes windows of old records from their changelogs
- ``process_queries``   queries from the application's process to the stores in the processes of its stream threads
- ``processes``         the application's side of its stream threads: starts their supervisor, sends it commands, and
                        knows their state
- ``restore_thread``    restores stores and follows changelogs on its own thread, beside the running tasks
- ``results``           what an application writes while it runs, read back: for notebooks, scripts and experiments
- ``rollback``          rolls an upgrade back from outside, without any action by the application's processes
- ``steady_clock``      the clock of a stream thread, and how far the machine's clock is ahead of it
- ``stop_signals``      SIGTERM and SIGINT, which stop a run gracefully
- ``store_metrics``     metrics of stores, their record caches and RocksDB, read on the processing thread for a few
                        tasks at a time
- ``store_origins``     what stores hold in the other members of the group, according to their client tags
- ``supervisor``        ``num.stream.threads`` as processes: one supervisor, and a worker for each stream thread
- ``task_metrics``      metrics of tasks, their nodes and their topics
- ``task_table``        what the tasks of an instance are doing, as a table: for terminals and notebooks
- ``topic_settings``    asks the cluster whether it takes the settings of internal topics
- ``topology_lock``     a lock file with the agreed topology, which must match the topology that runs
- ``topology_version``  which version of the topology ran last: with this state directory, and in the other members of
                        the group
- ``tracing``           OpenTelemetry: spans of the processing thread (``otel.spans``)
- ``tuning``            settings of the process that the data path needs: call ``tune_process`` once, before the first
                        record
- ``upgrade_status``    the progress of an upgrade, and what to do next
- ``values``            what a running application reports about itself
- ``watchdog``          detects a processing thread that is stuck, and reports the record and the line of code that
                        block it
- ``way_back``           whether a group can go back to the version that ran before, and what keeps it from that
- ``written_values``    values of stores that a topology can't read, found at the ends of changelogs
- ``worker``            a worker of ``supervisor``: an instance that receives commands and reports its state
- ``loop``              the processing loop of a stream thread: a pure machine that decides, and a thread that executes

1. Each process of an application has: the network thread (``streamsrt-network``), the processing thread, a thread that
   restores and follows changelogs if there is state (``streamsrt-restore``), and one that watches the processing
   thread.
2. The processing thread never waits for a restore, except for one step when it takes over a store in the middle of it.
3. Queries are answered on the processing thread, or on the caller's thread while that one waits. They read a store that
   is being restored between two steps (:mod:`streamsrt.queries.gate`, :mod:`streamsrt.runtime.restore_thread`).
"""
