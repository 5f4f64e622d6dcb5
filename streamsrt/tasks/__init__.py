"""Tasks: one subtopology over one partition number, and the manager that keeps them as assigned."""
