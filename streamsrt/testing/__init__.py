"""Runs a topology without a broker."""
