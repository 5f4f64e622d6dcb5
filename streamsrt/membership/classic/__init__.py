"""A member of a classic consumer group that runs a topology: the same program on any broker from Kafka 2.5 on.

- ``layout``  what members of a classic group write into their subscriptions and assignments, as bytes
- ``values``  what the members of a classic group tell their leader, and what the leader tells them
"""
