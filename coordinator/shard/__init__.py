"""Runs a group machine over its log."""
