"""Applications of faust-streaming, run by streamsrt."""
