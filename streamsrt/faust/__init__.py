"""Applications of faust-streaming, run as they are: ``streamsrt.faust.topology(app)``, ``streamsrt faust run module:app``.

==============  =============================================================================================
module          what it has
==============  =============================================================================================
``program``     from an application to a topology
``reading``     what an application declares, and what of it is not supported
``names``       names of faust's that do nothing here, and where an application uses them
``places``      where its parts stand in the program
``timers``      ``@app.timer`` and ``@app.crontab``
``background``  ``@app.task``, ``@app.service`` and signals
``stages``      which streams an agent derives from its own
``settings``    from its settings to those of Kafka Streams
``host``        the event loop of the agents, which turns on the processing thread only
``running``     what all agents of one task share, and the application while its tasks run
``agents``      one agent of one task: what it is given, what it acknowledged, what becomes of its exceptions
``channels``    agents over channels in memory
``streams``     the stream that an agent iterates over
``events``      events and messages, made when somebody asks for them
``pages``       where ``table_route`` leads
``asking``      answers to those who ask agents
``codecs``      codecs that an application names and faust must know
``decoding``    keys and values from bytes, as the application's schemas have it
``records``     records of faust's, made of data
``encoding``    the same the other way round, as the topics that are sent to have it
``sends``       what agents send, gathered until their records are worked off
``rows``        what is asked of the rows of a table, whichever store has them
``tables``      tables over the stores of the task
``expiry``      rows of windows that expire: which ones are next
``sets``        tables of sets
``test_app``    an application in a test, without a broker
==============  =============================================================================================

1. An application and its parts are objects of faust's. What they do while agents run is put in their places by
   ``program.Program`` when the first agent of a process begins, and taken back when the last one has ended.
2. Agents run on the thread of their task: a batch of records is one step of one asyncio task, however many records it has.
   An agent that awaits something else goes on while the task reads more; a commit waits for it.
3. Nothing is committed that is not acknowledged, and what an agent sent and wrote is in the commit of its record.
4. What is not supported is one error at the start, which names the line.

Needs the extra ``faust``. Nothing else of this package imports it, but the command line when it is asked to.
"""

from __future__ import annotations

from streamsrt.faust.program import topology
from streamsrt.faust.settings import config
from streamsrt.faust.test_app import TestApp

__all__ = ["TestApp", "config", "topology"]
