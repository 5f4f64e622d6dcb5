"""The group coordinator's state machines: values in, values out, time as an argument."""
