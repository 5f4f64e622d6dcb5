"""What a subtopology does to a run of records: functions over columns and stores."""
