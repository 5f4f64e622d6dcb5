"""The topology DSL: what a stream application computes, as pure values."""
