"""What each API asks of who calls it, as Kafka asks it.

1. A rule stands before the handler of an API: it takes out of the request what the requester has no right to, and adds the
   refusals to the answer. The handlers know nothing of it, and nothing of this runs where no authorizer is set.
2. Every API that is served has a rule (:mod:`coordinator.broker.authorization.rules`); the broker does not start without.
3. What a right is missing for is answered per topic, partition, group or transaction with the error of its kind.
"""
