"""Dead letters: finding them in their topic, and replaying or dropping them.

=============  =====================================================================
module         what it is
=============  =====================================================================
``placement``  to which partition a record is written back
``letters``    one dead letter as a value, the marks beside it, which letters are meant
``decoding``   what a letter's key and value say, by the serdes of its application
``topic``      a dead-letter topic of a cluster: reading it, and replaying from it in transactions
=============  =====================================================================

1. A letter remains in the topic. A mark says what was done with it: a record in the same partition of the dead-letter
   topic, written in the transaction that replayed the letter. So each letter is replayed only once, whatever fails, and
   no other place has to know.
2. A record that failed in several steps has several letters, and is replayed once.
3. A letter that can't be replayed without harm is left out, with the reason: its value was omitted, it is not the record
   that was read, or its application stopped at the record and will read it again.

The headers of dead letters are those of KIP-1034 (:mod:`streamsrt.operators.engine.handlers`).
"""
