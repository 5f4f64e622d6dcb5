"""The common inputs and outputs of the broker's state machines, for groups and for transactions.

    handle(state, event, now_ms, ...) -> Decision     reads the state, changes nothing
    apply(state, record)              -> state        the only transition of hard state, live and when a log is loaded

- ``values``: records, timers, producers, and the decision that says what follows from an event.
"""
