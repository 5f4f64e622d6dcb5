"""``streamsrt upgrade``: a new version of a running application, from the plan to its end or back.

| module | what it is |
| --- | --- |
| ``command`` | the commands together |
| ``plan`` | ``upgrade plan``: what a new version does to a running application, and whether it may start |
| ``preflight`` | what would refuse a new version, or stop it later |
| ``start`` | ``upgrade start``: runs one instance of the new version, as a plan says |
| ``status`` | ``upgrade status``: the group's versions, their tasks, what to do next |
| ``abort`` | ``upgrade abort``: rolls an upgrade back |
| ``in_flight`` | what ``upgrade abort`` would leave unread |
| ``unreadable_stores`` | values of stores that ``upgrade abort`` would leave unreadable |

1. ``plan`` and ``status`` change nothing, ``start`` needs a plan, and ``abort`` only shows what it would do without
   ``--execute``.
2. Streams groups and classic groups are judged by the same functions.
"""
