"""The durable log of one partition: append, read, recover."""
