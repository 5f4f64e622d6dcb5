"""The processing thread: poll, process, commit; and the threads and processes around it.

1. An application has, in each of its processes: the network thread (``streamsrt-network``), the processing thread, one that
   restores and follows changelogs where there is state (``streamsrt-restore``), and one that watches the processing thread.
2. The processing thread never waits for a restore, but where it takes over a store in the middle of it: for one step.
3. Queries are answered on the processing thread, or on the caller's while that one waits. Into a store that is restored
   meanwhile they look between two steps (:mod:`streamsrt.queries.gate`, :mod:`streamsrt.runtime.restore_thread`).
"""
