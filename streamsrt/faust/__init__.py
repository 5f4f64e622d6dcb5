"""Runs faust-streaming applications unchanged: ``streamsrt.faust.topology(app)``, ``streamsrt faust run module:app``.

==============  =============================================================================================
module          what it has
==============  =============================================================================================
``program``     from an application to a topology
``discovery``   imports the modules that ``autodiscover=`` names
``reading``     what an application declares; rejects what is not supported
``names``       unsupported names of Faust's classes, and where an application uses them
``locations``   file and line of an application's agents, tables and functions
``timers``      ``@app.timer`` and ``@app.crontab``
``background``  ``@app.task``, ``@app.service`` and signals
``spawned``     tasks that the program itself begins
``lifecycle``   ``on_start`` and other methods of an application's own class
``services``    what the application, its agents and its tables have as services of ``mode``
``stages``      which streams an agent derives from its own
``options``     every setting of an application, and what becomes of it
``settings``    converts an application's settings to Kafka Streams'
``host``        the agents' event loop, which runs on the processing thread
``current``     which task runs, and what its agents share
``running``     an application while its tasks run: what replaces faust's worker around them
``monitoring``  ``app.monitor``: figures for Faust's Monitor, counted per batch
``agents``      one agent in one task: its input, its acknowledgements, its exceptions
``channels``    agents over channels in memory
``streams``     the stream that an agent iterates over
``events``      events and messages, created on demand
``pages``       routing of ``table_route`` and ``topic_route``
``asking``      replies to ``ask``, ``map`` and ``join``
``codecs``      checks that Faust knows the codecs an application names
``json_form``   the standard library's JSON or orjson's, whatever is installed
``decoding``    decodes keys and values with the application's schemas
``records``     creates ``faust.Record`` objects from decoded data
``encoding``    encodes keys and values with the schema of the target topic
``sends``       buffers what agents send until their batch is processed
``recovery``    ``on_changelog_event`` of tables
``rows``        the interface of a table's rows, independent of the store
``guarded``     names of tables that the program must not use
``tables``      tables over the stores of the task
``unreadable``  rows that can't be read
``unwritable``  keys that can't be written, and the key None
``expiry``      deletes rows whose windows have expired
``sets``        tables of sets
``test_app``    an application in a test, without a broker
``creation``    creates the topics that are missing, and gives the group its timeouts
``imported``    ``App`` and ``Worker`` of programs that import this package as ``faust``
==============  =============================================================================================

1. The application, its topics, tables and agents remain Faust's own objects. ``program.Program`` patches their methods
   when the first agent of a process starts, and restores them after the last one has stopped.
2. Agents run on the thread of their task: a batch of records is one step of one asyncio task, however many records it has.
   If an agent awaits anything else, the task continues to read; a commit waits for the agent.
3. Only acknowledged records are committed, together with what the agent sent and wrote for them.
4. Unsupported features cause an error at startup, with the line.

The package has all public names of Faust, for programs that begin with ``import streamsrt.faust as faust``.

Needs the extra ``faust``. Only the command line imports this package, and only on demand.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from streamsrt.faust.imported import App, Worker
from streamsrt.faust.program import topology
from streamsrt.faust.settings import config
from streamsrt.faust.test_app import TestApp

if TYPE_CHECKING:
    from faust import *  # noqa: F403

__all__ = ["App", "TestApp", "Worker", "config", "topology"]


def __getattr__(name: str) -> object:
    """The names of Faust that have no other meaning here."""
    package = importlib.import_module("faust")
    try:
        found: object = getattr(package, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}, and neither has faust") from None
    return found
