"""``import streamsrt.faust as faust``: applications whose ``app.main()`` and ``faust.Worker`` run here.

1. Faust's own command line is used as it is: its options are parsed, and set, by Faust. Only ``worker`` starts this runtime
   in the place of Faust's: its class is a setting of the application.
2. An application that was made here never runs on Faust: what would start it there is refused.
"""

from __future__ import annotations

import os
import shlex
from importlib.metadata import version
from typing import NoReturn

import faust
from faust.livecheck import LiveCheck

from streamsrt.app import KafkaStreams
from streamsrt.config import StreamsConfig, key_value_pairs
from streamsrt.errors import ConfigError, UserError, message_and_exit_code
from streamsrt.faust.asking import BrokerAnswers
from streamsrt.faust.creation import create_topics
from streamsrt.faust.locations import declared_at
from streamsrt.faust.options import given_options
from streamsrt.faust.program import topology_with
from streamsrt.faust.settings import config

_HARMLESS_HOOKS = frozenset({"on_init", "on_restart", "on_setup_root_logger"})
_HOOKS = tuple(name for name in dir(faust.Worker) if name.startswith("on_") and name not in _HARMLESS_HOOKS)
"""Methods that faust calls when a worker starts or stops, and nobody calls here: a subclass that has one is refused."""
SETTINGS_VARIABLE = "STREAMSRT_CONFIG"
"""Has settings of the runtime: ``KEY=VALUE KEY=VALUE``, quoted as in a shell."""
_DATADIR_VARIABLES = ("FAUST_DATADIR", "F_DATADIR")


class Worker(faust.Worker):  # type: ignore[misc]  # faust is not typed here
    """``faust.Worker`` that runs its application on streamsrt."""

    runs_here = True

    def execute_from_commandline(self) -> NoReturn:
        """Runs the application until SIGTERM or Ctrl-C, and exits. What ends it is one message, and an exit code."""
        try:
            self._check()
            # It draws on the terminal, and makes the log as detailed as it can be.
            self.spinner = None
            if self.override_logging:
                self._setup_logging()
            self.change_workdir(self.workdir)
            self._run()
        except Exception as error:
            message, code = message_and_exit_code(error)
            if message is None:
                raise
            self.stderr.write(f"streamsrt: {message}\n")
            raise SystemExit(code) from None
        raise SystemExit(0)

    async def start(self) -> None:
        """Raises UserError: nothing runs in a loop that is the caller's."""
        _refuse_to_start(self.app)

    def _check(self) -> None:
        name = f"{type(self).__name__} of {self.app.conf.id}"
        if isinstance(self.app, LiveCheck):
            raise UserError("faust livecheck is not supported by streamsrt.faust: run it with faust-streaming itself")
        if self.services:
            raise UserError(f"{name}: services of a worker are not supported by streamsrt.faust: use @app.service")
        if self.sensors:
            raise UserError(
                f"{name}: sensors are not supported by streamsrt.faust: the metrics of the runtime: docs/running.md"
            )
        hook = next((each for each in _HOOKS if getattr(type(self), each) is not getattr(faust.Worker, each)), None)
        if hook is not None:
            raise UserError(
                f"{name}{declared_at(type(self))} has a method {hook}, which nobody would call here: use a signal of the "
                "application, such as on_worker_init or on_before_shutdown, or @app.task"
            )

    def _run(self) -> None:
        app = self.app
        # The command line has sent on_worker_init.
        topology = topology_with(app, BrokerAnswers, says_init=False)
        datadir = _state_dir(app)
        own = {} if datadir is None else {"state.dir": datadir}
        settings = StreamsConfig.of(config(app), own, _settings_of_environment())
        self.say(
            f"{app.conf.id} runs on streamsrt {version('streamsrt')}; its tables are stored below {settings.state_dir}"
        )
        create_topics(app, settings)
        KafkaStreams(topology, settings).run()


def _state_dir(app: faust.App) -> str | None:
    """``datadir``, where the command line, the environment or the program sets it."""
    is_given = "datadir" in given_options(app) or any(os.environ.get(name) for name in _DATADIR_VARIABLES)
    return str(app.conf.datadir) if is_given else None


def _settings_of_environment() -> dict[str, str]:
    """Those of :data:`SETTINGS_VARIABLE`. Raises ConfigError."""
    try:
        return key_value_pairs(shlex.split(os.environ.get(SETTINGS_VARIABLE, "")), SETTINGS_VARIABLE)
    except ValueError as error:
        raise ConfigError(f"{SETTINGS_VARIABLE}: {error}: quote it as in a shell") from None


class App(faust.App):  # type: ignore[misc]  # faust is not typed here
    """``faust.App`` whose ``main()``, and ``faust -A`` with its name, run ``worker`` on streamsrt."""

    uses_web = True

    def __init__(self, *names: str, **options: object) -> None:
        super().__init__(*names, **{"Worker": Worker, **options})

    def worker_init_post_autodiscover(self) -> None:
        """Faust calls this before each command, and would make a web server, whether there are pages or not."""
        self.uses_web = self.uses_web and self.__dict__.get("web") is not None
        self.on_worker_init.send()

    async def start(self) -> None:
        """Starts a client, for commands and programs that only send. Raises UserError for anything else."""
        if not (self.client_only or self.producer_only):
            _refuse_to_start(self)
        await super().start()


def _refuse_to_start(app: faust.App) -> NoReturn:
    raise UserError(
        f"{app.conf.id}{declared_at(app)}: an application of streamsrt.faust does not run inside of another event loop, and "
        "not on faust-streaming's own worker. Run it with app.main(), with Worker(app).execute_from_commandline(), or with "
        "`streamsrt faust run`"
    )
