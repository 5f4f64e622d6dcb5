"""The rights that each API requires, as in Kafka.

- ``cluster``       rights to describe and change the cluster: ``KafkaApis``, ``ControllerApis`` and ``AclApis`` of
                    Kafka
- ``groups``        rights to join, commit, describe and delete groups: ``KafkaApis``
- ``guard``         what guards have in common: their type, and how the refused part of a response is merged with the
                    rest
- ``records``       rights to read, write and look up records: ``KafkaApis``, for the APIs of producers and consumers
- ``rules``         the rule of each API
- ``topics``        rights to see, create, change and delete topics: ``KafkaApis`` and ``ControllerApis``
- ``transactions``  rights to write in transactions, and to describe them: ``KafkaApis``

1. A rule is applied before the handler of an API: it removes the parts of the request for which the requester has no
   right, and adds the refusals to the response. The handlers know nothing about it, and none of this runs without an
   authorizer.
2. Every API that is served has a rule (:mod:`coordinator.broker.authorization.rules`); the broker does not start
   without it.
3. Missing rights are reported per topic, partition, group or transaction, with the error of its kind.
"""
