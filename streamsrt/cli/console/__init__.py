"""``streamsrt console``: the applications of a cluster on a page that a browser shows.

| module | what it is |
| --- | --- |
| ``command`` | the command: its options, the socket |
| ``site`` | paths, the token, what a browser may do with the page |
| ``snapshots`` | snapshots of the cluster: one request at a time, shared by all browsers |
| ``group_view`` | one application as JSON: members, tasks, topics, subtopologies |
| ``instances`` | what instances tell over HTTP: stores, tasks, the row of a key |
| ``dead_letters`` | how many letters a dead-letter topic has, and the newest ones |
| ``changes`` | what may be changed with ``--allow-changes`` |
| ``page/`` | the page: HTML, CSS and JavaScript without a library and without anything from elsewhere |

1. Everything comes from the group coordinator, so members of Kafka Streams of Java are shown as far as they report it.
   Instances with HTTP add information that only they have: restore progress, stream time, stores, counters.
2. Nothing can be changed without ``--allow-changes``; with it, dead letters are replayed and dropped, and nothing else.
3. Requests to instances only go to addresses that a member of the group has reported.
"""
