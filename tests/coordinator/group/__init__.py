"""Tests of the group machines."""
