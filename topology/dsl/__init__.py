"""What a program calls: builders, streams, tables, groups and their operators."""
