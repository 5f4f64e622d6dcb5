"""Dead letters after the fact: finding them in their topic, and giving them another try or giving them up.

=============  =====================================================================
module         what it is
=============  =====================================================================
``letters``    one dead letter as a value, the marks beside it, which letters are meant
``decoding``   what a letter's key and value say, by the serdes of its application
``topic``      a dead-letter topic of a cluster: reading it, and replaying from it in transactions
=============  =====================================================================

1. A letter stays where it is. What became of it is said by a mark: a record in the same partition of the dead-letter topic,
   written in the transaction that replayed the letter. So a letter is replayed once, whatever dies in between, and the
   topic alone knows.
2. A record that failed in several steps has several letters, and is replayed once.
3. A letter that can't be replayed without harm is left, with the reason: one whose value was left out, one that is not the
   record that was read, one whose application stopped at the record and reads it again by itself.

The headers of dead letters are those of KIP-1034 (:mod:`streamsrt.operators.engine.handlers`).
"""
