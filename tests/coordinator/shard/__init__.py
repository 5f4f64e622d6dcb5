"""Tests of the shard."""
