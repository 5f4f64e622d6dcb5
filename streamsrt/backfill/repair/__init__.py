"""Rebuilds one store of an application that has run, and leaves everything else as it is.

==============  ==========================================================================================
``scope``       what a store is computed from: subtopologies and other stores; stores that can't be rebuilt alone
``inputs``      up to which offsets the application has read its inputs, and what keeps a replay from meeting them
``feeding``     whether the stores that it is computed from are what the replay has made of them
``moved_rows``  whether the replay has put rows where they were before ``state repartition``
``handover``    the changelog of the store into the cluster; outputs, other stores and offsets stay as they are
==============  ==========================================================================================

1. The replay reads exactly what the stopped application has read: each input up to its committed offset.
2. It replays whole subtopologies, with all their stores, and keeps the changelog of one.
3. That is right only if the other stores that it is computed from are in the cluster as the replay made them. This is
   compared before anything is changed.
4. The old changelog must be gone: its records would be mixed with the new ones. The user deletes it when all else is
   checked.
"""
