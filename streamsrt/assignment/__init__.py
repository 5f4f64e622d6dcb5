"""Task assignment as pure functions that broker and client share.

Values in, values out. Of this project it imports only :mod:`streamsrt.wire`. The same group gets the same tasks in
every process.

- ``assignor``          task assignors: their interface and their table
- ``configuration``     applies a topology to the existing topics: tasks, internal topics, and what is wrong
- ``digest``            the name of a version of the program, which members of a classic group announce and the bundled
                        broker checks
- ``handover``          the target of a group whose members run several versions of its topology: warm, in steps, and
                        back if necessary
- ``highly_available``  the assignor ``highly_available``: tasks with state run where their state is, and move when the
                        new place has caught up
- ``in_flight``         records that wait in repartition topics which another version of the topology does not read
- ``internal_topics``    what changelogs are called
- ``moves``             what moves between two target assignments of a group, as text: who runs a task, and where one
                        warms up
- ``patterns``          source topics by pattern: the topics that the patterns of a topology match
- ``placement``         gives tasks to members, one role at a time: the common part of the assignors
- ``progress``          how far processes are with the state of tasks, by the offsets that their members reported
- ``reconcile``         moves one member a step towards its target, as set algebra
- ``refused_update``    why a member, or its topology, can't be part of a group: code and text
- ``status_code``       the status codes of KIP-1071
- ``sticky``            the assignor ``sticky``: few moves, equal loads
- ``targets``           rules for the target of every group: which assignor computes it, and no task twice in a process
- ``tasks``             tasks as values: who runs what, in which role, and how messages represent it
- ``topic_pattern``     patterns of topic names, in RE2's syntax
- ``topics``            topics as values: existing ones, and one to create
- ``topology``          the topology of a streams group as its members describe it, as a value
- ``value_versions``    versions of the values in stores, as members report them, and updates that they rule out
- ``version_backoff``   how long a new version waits for more tasks after members of it have gone
- ``versions``          which tasks of two versions of a topology conflict, and which of them change hands together
"""
