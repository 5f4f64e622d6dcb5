"""The broker's answers, one module per family of APIs."""
