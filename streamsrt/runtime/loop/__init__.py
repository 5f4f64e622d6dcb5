"""The processing loop of a stream thread: a pure machine that decides, and a thread that executes.

    step(state, event, now_ms) -> (state, actions)

- ``schedule``: what is due when, as one sorted value.
- ``values``: the state, the events, the actions.
- ``commit_parts``: commits of some tasks at a time, so that records don't wait for a long commit.
- ``machine``: ``step``, the only place that decides what is done next and when.
- ``report``: why a commit is late, a poll was skipped or nothing happens, computed from the state.
- ``progress``: what the thread publishes and logs about its tasks.
- ``ends_of_logs``: what is asked of the logs that tasks read, after a commit: where they end, and that they begin later.
- ``last_calls``: how long a last commit waits for asynchronous calls.
- ``thread``: :class:`~streamsrt.runtime.loop.thread.StreamThread`, which owns the tasks and executes the actions.
"""
