"""A worker of :mod:`streamsrt.runtime.supervisor`: an instance that receives commands and reports its state."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Protocol

from streamsrt.config import StreamsConfig
from streamsrt.errors import StreamsError
from streamsrt.runtime.lifecycle import GroupMembershipOperation
from streamsrt.runtime.loop.thread import StreamThread
from streamsrt.runtime.supervisor import EXIT_MUTE, EXIT_STUCK, Failure, Report, SetPaused, ShutDown, Stop
from streamsrt.runtime.values import Progress, State

logger = logging.getLogger(__name__)

_REPORT_S = 0.1
_LEAST_MEMORY_BYTES = 4 << 20


class Instance(Protocol):
    """An instance: :class:`streamsrt.app.KafkaStreams`, with one stream thread."""

    on_stuck: Callable[[str], None] | None

    @property
    def state(self) -> State: ...
    @property
    def progress(self) -> Progress: ...
    @property
    def was_shut_down(self) -> bool: ...
    def run_thread(self, is_over: Callable[[StreamThread], bool]) -> None: ...
    def stop(self, membership: GroupMembershipOperation | None = ...) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


def worker_config(config: StreamsConfig, index: int) -> StreamsConfig:
    """Returns the configuration of one of several workers, with its share of the memory and its own names and addresses."""
    count = config.num_stream_threads
    values: dict[str, object] = {
        "num_stream_threads": 1,
        "client_id": f"{config.client_id or f'streamsrt-{config.application_id}'}-StreamThread-{index}",
        "cache_max_bytes": max(_LEAST_MEMORY_BYTES, config.memory_bytes // count),
        "statestore_cache_max_bytes": config.record_cache_bytes // count,
    }
    if config.group_instance_id is not None:
        values["group_instance_id"] = f"{config.group_instance_id}-{index}"
    for name in ("http_listen", "application_server"):
        address = getattr(config, name)
        if address:
            values[name] = _address(address, index)
    return StreamsConfig.of(config, **values)


def _address(address: str, index: int) -> str:
    """Returns the worker's address: its port is higher by its index minus 1. Port 0 means a free port for each."""
    host, _, port = address.rpartition(":")
    return address if not port.isdigit() or int(port) == 0 else f"{host}:{int(port) + index - 1}"


def run_worker(streams: Instance, control: Connection, *, stop_when_quiet: bool) -> None:
    """Runs an instance until it is stopped. Raises StreamsError, after reporting it to the supervisor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A signal handler must not take a lock: the thread below checks the flag.
    terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: terminated.set())
    # The supervisor has it wait from before the fork.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    streams.on_stuck = _end_at_once
    quiet = False
    thread: StreamThread | None = None

    def is_over(loop: StreamThread) -> bool:
        nonlocal quiet, thread
        thread = loop
        quiet = stop_when_quiet and loop.commit_if_drained()
        return False

    over = threading.Event()

    def tell() -> None:
        with suppress(OSError):
            control.send(Report(streams.state, streams.progress, quiet))
            if thread is not None and thread.is_stopped_by_program:
                control.send(Stop(GroupMembershipOperation.DEFAULT))

    def talk() -> None:
        while not over.is_set():
            tell()
            if terminated.is_set() or not _take_commands(streams, control):
                streams.stop()
                return

    talker = threading.Thread(target=_or_end, args=(talk,), name="streamsrt-control", daemon=True)
    talker.start()
    try:
        streams.run_thread(is_over)
    except StreamsError as error:
        over.set()
        talker.join()
        control.send(Failure.of(error))
        raise
    over.set()
    talker.join()
    tell()
    if streams.was_shut_down:
        control.send(ShutDown())


def _take_commands(streams: Instance, control: Connection) -> bool:
    """Waits a moment for a command and executes it; returns False if there will be no more commands."""
    try:
        if not control.poll(_REPORT_S):
            return True
        command = control.recv()
    except (EOFError, OSError):
        return False
    match command:
        case Stop(membership):
            streams.stop(membership)
        case SetPaused(paused):
            (streams.pause if paused else streams.resume)()
    return True


def _or_end(talk: Callable[[], None]) -> None:
    try:
        talk()
    except Exception:
        # A worker that takes no commands can't be stopped, and nobody sees what it does.
        logger.critical("the thread that talks to the supervisor has failed", exc_info=True)
        _end_at_once("it neither reports nor takes commands any more", EXIT_MUTE)


def _end_at_once(what: str, code: int = EXIT_STUCK) -> None:
    logger.critical("this process ends and is replaced: %s", what)
    os._exit(code)
