"""What each API asks of who calls it, as Kafka asks it.

- ``cluster``       who may look at the cluster and change it: what Kafka asks in ``KafkaApis``, ``ControllerApis``
                    and ``AclApis``
- ``groups``        who may be in a group, commit, look at groups and delete them: what Kafka's ``KafkaApis`` asks
- ``guard``         what guards have in common: their type, and how the refused part of an answer is joined to the
                    rest
- ``records``       who may read, write and look up records: what Kafka's ``KafkaApis`` asks for the APIs of producers
                    and consumers
- ``rules``         the rule of each API: what it asks of who calls it
- ``topics``        who may see, make, change and delete topics: what Kafka asks in ``KafkaApis`` and
                    ``ControllerApis``
- ``transactions``  who may write in transactions, and look at them: what Kafka's ``KafkaApis`` asks

1. A rule stands before the handler of an API: it takes out of the request what the requester has no right to, and adds the
   refusals to the answer. The handlers know nothing of it, and nothing of this runs where no authorizer is set.
2. Every API that is served has a rule (:mod:`coordinator.broker.authorization.rules`); the broker does not start without.
3. What a right is missing for is answered per topic, partition, group or transaction with the error of its kind.
"""
