"""What every state machine of the broker takes and gives, whatever it coordinates: the group and the transaction machine.

    handle(state, event, now_ms, ...) -> Decision     reads the state, changes nothing
    apply(state, record)              -> state        the only transition of hard state, live and at a load

- ``values``: records, timers, producers, and the decision that says what follows from an event.
"""
