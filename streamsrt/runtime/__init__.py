"""The processing thread: poll, process, commit; and the threads and processes around it.

- ``assembly``          one processing thread, put together out of the configuration: tasks, committer, membership,
                        loop, queries
- ``bundled_broker``    the bundled broker as a process of its own: found where it runs, else started
- ``commit``            committing, at least once
- ``drop_log``          says in the log which records were dropped and why: by task and reason a line every ten
                        seconds at most, with the count
- ``exactly_once``      committing, exactly once (KIP-447): results, changelogs and input offsets in one transaction
- ``failures``          what is committed when the processing thread ends with an error
- ``group_facts``       an application's group as its cluster describes it: one value, whichever protocol the group has
- ``group_protocol``    the protocol by which an instance joins its group, where ``group.protocol=auto``
- ``health``            whether an instance is alive and ready, and if not, why: in words for logs, probes and people
- ``instance_metrics``  all metrics of one instance, made when somebody asks
- ``lifecycle``         what an application decides about its own life: failures, and how it leaves
- ``memory``            the budget of ``cache.max.bytes``: who gets what of it, and what is used
- ``meter``             what the processing thread counts about itself: plain integers, changed once an iteration, never
                        once a record
- ``metrics``           metrics under Kafka Streams' names, made of what the runtime counts anyway when somebody asks
                        for them
- ``process_queries``   queries from the application's process to the stores in the processes of its stream threads
- ``processes``         the application's side of its stream threads: starts their supervisor, tells it what to do,
                        and knows how they are
- ``restore_thread``    restores stores and follows changelogs on a thread of its own, beside the tasks that run
- ``results``           what an application writes while it runs, read back: for notebooks, scripts and trials
- ``sent_back``         sends an upgrade back from outside: no process of the application is asked to do anything
- ``store_metrics``     metrics of stores, their record caches and RocksDB. They are read on the processing thread, a
                        few tasks at a time
- ``store_origins``     what generated store names stand for in the members of the group, as far as their client tags
                        tell it
- ``supervisor``        ``num.stream.threads`` as processes: one supervisor, and a worker for each stream thread
- ``task_metrics``      metrics of tasks, their nodes and their topics
- ``topology_lock``     a topology that is checked in, which what runs must match
- ``topology_version``  which version of the topology ran last: with this state directory, and in the other members of
                        the group
- ``tracing``           OpenTelemetry: spans of what the processing thread does, where ``otel.spans`` asks for them
- ``tuning``            settings of the process that the data path needs: call ``tune_process`` once, before the first
                        record
- ``upgrade_status``    how far the upgrade of a running application is, and what to do next
- ``values``            what a running application tells about itself
- ``watchdog``          notices a processing thread that does not come around, and says which record and which line of
                        code keep it
- ``worker``            what a worker of ``supervisor`` is: an instance that is told what to do and tells how it is
- ``loop``  the processing loop of a stream thread: a pure machine that decides, and a thread that does what it says

1. An application has, in each of its processes: the network thread (``streamsrt-network``), the processing thread, one that
   restores and follows changelogs where there is state (``streamsrt-restore``), and one that watches the processing thread.
2. The processing thread never waits for a restore, but where it takes over a store in the middle of it: for one step.
3. Queries are answered on the processing thread, or on the caller's while that one waits. Into a store that is restored
   meanwhile they look between two steps (:mod:`streamsrt.queries.gate`, :mod:`streamsrt.runtime.restore_thread`).
"""
