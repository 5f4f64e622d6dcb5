"""Who runs which task, as pure functions that broker and client share.

Values in, values out. Of ours it imports :mod:`streamsrt.wire` only. The same group gets the same tasks in every process.

- ``assignor``          task assignors: one interface, and the table of those that there are
- ``configuration``     what a topology means for the topics that there are: tasks, internal topics, and what is wrong
- ``digest``            the name of a version of the program, which members of a classic group say of themselves and the
                        bundled broker checks
- ``handover``          the target of a group whose members run several versions of its topology: warm, in steps, and back
                        if it has to be
- ``highly_available``  the assignor ``highly_available``: tasks with state run where their state is, and move once it
                        is where they are to go
- ``in_flight``         records that wait in repartition topics which another version of the topology does not read
- ``moves``             what moves between one target assignment of a group and the next, in words: who runs a task, and
                        where one warms up
- ``patterns``          source topics by pattern: what the patterns of a topology mean for the topics that there are
- ``placement``         gives tasks to members, a role at a time: what the assignors have in common
- ``progress``          how far processes are with the state of tasks, by the offsets that their members reported
- ``reconcile``         moves one member a step towards its target, as set algebra
- ``refused_update``    why a member, or the topology that it brings, can't be part of a group: code and text
- ``status_code``       the status codes of KIP-1071
- ``setbacks``          how long a new version waits for more, after members of it have gone
- ``sticky``            the assignor ``sticky``: few moves, equal loads
- ``targets``           what holds for the target of every group: which assignor makes it, and no task twice in a process
- ``tasks``             tasks as values: who runs what, in which role, and how that stands in messages
- ``topic_pattern``     patterns of topic names, which have RE2's syntax
- ``topics``            topics as values: those that there are, and one to create
- ``topology``          the topology of a streams group as its members describe it, as a value
- ``value_versions``    versions of the values in stores, as members tell them, and updates that can't be made because
                        of them
- ``versions``          which tasks of two versions of a topology get in each other's way, and what of them changes hands
                        together
"""
