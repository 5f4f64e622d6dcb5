"""``streamsrt dlq``, with applications that fail and are mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamsrt import KafkaStreams
from streamsrt.cli.application import load_application
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ProducerFencedError, TransactionLostError
from streamsrt.dead_letters.letters import Letter, LetterFilter, LetterOutcome
from streamsrt.dead_letters.topic import DeadLetterTopic, Replay, connected
from streamsrt.errors import TopologyMismatchError
from streamsrt.membership.errors import StreamsInvalidTopologyEpochError
from streamsrt.operators.engine.handlers import ErrorContext, dead_letter
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.murmur2 import partition_for_key
from tests.streamsrt.cli.conftest import Command, Done
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

PATIENCE_S = 60.0


class Shop:
    """Orders that are counted by their kind: a line ``KIND=AMOUNT``. The broken one can't read some amounts."""

    def __init__(self, command: Command, servers: str, name: str, folder: Path) -> None:
        self._command = command
        self.servers = servers
        self.orders, self.counts, self.letters, self.id = f"{name}-in", f"{name}-out", f"{name}-dlq", name
        self._folder = folder
        self("topics", "create", self.orders, self.counts, self.letters, "--partitions", 2)

    def __call__(self, *arguments: object, stdin: str = "") -> Done:
        return self._command(*arguments, "-b", self.servers, stdin=stdin)

    def topology(self, *, broken: bool) -> Topology:
        def amount(text: str) -> int:
            if broken:
                return int(text)
            return int(text.removesuffix("?"))

        builder = StreamsBuilder()
        orders = builder.stream(self.orders, key=serdes.string, value=serdes.string)
        totals = orders.map_values(amount).group_by_key(value=serdes.long).reduce(lambda a, b: a + b, store="totals")
        totals.to_stream().to(self.counts, key=serdes.string, value=serdes.long)
        return builder.build()

    def run(self, *, broken: bool, **settings: Any) -> None:
        self._run(self.topology(broken=broken), settings)

    def run_program(self, program: Path, name: str) -> None:
        """A topology of a file."""
        self._run(load_application(f"{program}:{name}").topology, {})

    def _run(self, topology: Topology, settings: Mapping[str, Any]) -> None:
        config = {
            "application.id": self.id,
            "bootstrap.servers": self.servers,
            "state.dir": self._folder / "state",
            "processing.exception.handler": "continue",
            "errors.dead.letter.queue.topic.name": self.letters,
            "processing.guarantee": "exactly_once_v2",
            **settings,
        }
        KafkaStreams(topology, config).run(until="quiet", timeout_s=PATIENCE_S, signals=False)

    def produce(self, lines: list[str]) -> None:
        assert (
            self("produce", self.orders, "--key-separator", "=", stdin="".join(f"{line}\n" for line in lines)).code == 0
        )

    def totals(self) -> dict[str, int]:
        """The last total of each kind."""
        done = self("consume", self.counts, "--value", "long", "--json")
        assert done.code == 0, done.err
        return {row["key"]: row["value"] for row in done.rows}

    def waiting(self) -> list[dict[str, Any]]:
        return self("dlq", "list", self.letters, "--json").rows


@pytest.fixture
def shop(command: Command, bootstrap_servers: str, topic: str, tmp_path: Path) -> Shop:
    return Shop(command, bootstrap_servers, topic, tmp_path)


def expected(lines: list[str]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for line in lines:
        kind, _, amount = line.partition("=")
        found[kind] += int(amount.removesuffix("?"))
    return dict(found)


def test_letters_are_listed_by_the_times_of_their_records(shop: Shop) -> None:
    for number in range(6):
        line = f"kind{number}={number}?\n"
        shop(
            "produce",
            shop.orders,
            "--key-separator",
            "=",
            "--timestamp",
            6_000 - number,
            "--partition",
            number % 2,
            stdin=line,
        )
    shop.run(broken=True)
    times = [row["time"] for row in shop.waiting()]
    assert times == sorted(times)
    assert len(times) == 6
    first = shop("dlq", "list", shop.letters, "-n", 2, "--json").rows
    assert [row["time"] for row in first] == ["1970-01-01T00:00:05.995", "1970-01-01T00:00:05.996"]


@pytest.mark.parametrize(
    ("count", "poisoned"), [(2_000, 200), pytest.param(100_000, 1_000, marks=[pytest.mark.full, pytest.mark.long])]
)
def test_after_a_replay_results_are_as_if_nothing_had_failed(shop: Shop, count: int, poisoned: int) -> None:
    every = count // poisoned
    lines = [f"kind{number % 7}={number}{'?' if number % every == 3 else ''}" for number in range(count)]
    shop.produce(lines)
    shop.run(broken=True)
    waiting = shop.waiting()
    assert len(waiting) == poisoned
    assert {(row["application"], row["error"], row["state"]) for row in waiting} == {(shop.id, "ValueError", "waiting")}
    assert waiting[0]["origin"].startswith(f"{shop.orders}-")
    told = shop("dlq", "replay", shop.letters)
    assert f"to {shop.orders}: {poisoned:,} records" in told.err
    assert "--execute" in told.err
    assert len(shop.waiting()) == poisoned
    done = shop("dlq", "replay", shop.letters, "--execute")
    assert (done.code, done.err.splitlines()[-1]) == (0, f"replayed {poisoned:,} records")
    assert shop.waiting() == []
    again = shop("dlq", "replay", shop.letters, "--execute")
    assert (again.code, again.err.splitlines()[-1]) == (0, "replayed 0 records")
    assert {row["state"] for row in shop("dlq", "list", shop.letters, "--all", "--json").rows} == {"replayed"}
    shop.run(broken=False)
    assert shop.totals() == expected(lines)


def test_what_fails_again_waits_again(shop: Shop) -> None:
    shop.produce(["a=1?", "a=2"])
    shop.run(broken=True)
    assert shop("dlq", "replay", shop.letters, "--execute").code == 0
    shop.run(broken=True)
    (row,) = shop.waiting()
    (shown,) = shop("dlq", "show", shop.letters, row["letter"], "--json").rows
    assert shown["replays"] == 1
    again = shop("dlq", "replay", shop.letters, "--execute")
    assert again.code == 0
    (shown,) = shop("dlq", "show", shop.letters, row["letter"], "--json").rows
    assert (shown["state"], shown["replays"]) == ("replayed", 2)
    assert shown["key"] == "a"
    assert shown["value"] == "1?"
    assert f"{__file__}:" in shown["line"]
    assert shown["line"].endswith("in amount")


def test_what_was_not_committed_is_replayed_by_the_next_one(shop: Shop) -> None:
    shop.produce([f"k{number}={number}?" for number in range(30)])
    shop.run(broken=True)
    with connected(shop.servers, shop.letters, writes=True) as network:
        topic = DeadLetterTopic(network, shop.letters)
        work = Replay(topic, [shop.orders])
        waiting = list(topic.waiting(LetterFilter()))
        for each in waiting[:10]:
            work.add(each)
        assert work.commit(1) == 10
        for each in waiting[10:]:
            work.add(each)
        work.send()
        network.producer.flush(PATIENCE_S)
    assert len(shop.waiting()) == 20, "nobody has ended that transaction: it is aborted by the next replay"
    done = shop("dlq", "replay", shop.letters, "--execute")
    assert done.err.splitlines()[-1] == "replayed 20 records"
    shop.run(broken=False)
    assert shop.totals() == {f"k{number}": number for number in range(30)}


def test_a_second_replay_ends_the_first_one(shop: Shop) -> None:
    shop.produce(["a=1?"])
    shop.run(broken=True)
    with connected(shop.servers, shop.letters, writes=True) as network:
        topic = DeadLetterTopic(network, shop.letters)
        first = Replay(topic, [shop.orders])
        assert shop("dlq", "replay", shop.letters, "--execute").code == 0
        for each in topic.waiting(LetterFilter()):
            first.add(each)
        with pytest.raises(ProducerFencedError):
            first.commit(1)
    shop.run(broken=False)
    assert shop.totals() == {"a": 1}


@pytest.mark.parametrize("first", ["replay", "drop"])
def test_the_one_that_is_ended_says_who_ended_it(shop: Shop, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """Another command begins while the first one reads the letters."""
    shop.produce(["a=1?", "b=2?"])
    shop.run(broken=True)
    letters, others = DeadLetterTopic.letters, ["drop"]

    def beside(self: DeadLetterTopic) -> Iterator[tuple[Letter, LetterOutcome | None]]:
        yield from letters(self)
        is_planned = first == "drop" or hasattr(self, "was_planned")
        self.__dict__["was_planned"] = True
        if others and is_planned:
            assert shop("dlq", others.pop(), shop.letters, "--execute").code == 0

    monkeypatch.setattr(DeadLetterTopic, "letters", beside)
    done = shop("dlq", first, shop.letters, "--execute")
    assert done.code == TransactionLostError("").exit_code
    assert f"another replay or drop of {shop.letters} has started, so this one stops" in done.err
    assert "Traceback" not in done.err
    assert shop.waiting() == []


def test_a_mend_that_changes_a_serde_needs_an_epoch_or_in_a_classic_group_a_new_state_directory(
    shop: Shop, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shop.produce(["a=1", "b=2"])

    def run(serde: serdes.Serde[Any], **settings: Any) -> None:
        builder = StreamsBuilder()
        orders = builder.stream(shop.orders, key=serdes.string, value=serde)
        orders.map_values(int).to(shop.counts, key=serdes.string, value=serdes.long)
        config = {
            "application.id": shop.id,
            "bootstrap.servers": shop.servers,
            "state.dir": tmp_path / "state",
            "deserialization.exception.handler": "continue",
            "errors.dead.letter.queue.topic.name": shop.letters,
            **settings,
        }
        KafkaStreams(builder.build(), config).run(until="quiet", timeout_s=PATIENCE_S, signals=False)

    run(serdes.long)
    assert len(shop.waiting()) == 2
    with pytest.raises(TopologyMismatchError, match="both have topology epoch 0"):
        run(serdes.string)
    assert shop("dlq", "replay", shop.letters, "--execute").code == 0
    run(serdes.string, **{"topology.epoch": 1})
    assert shop.totals() == {"a": 1, "b": 2}
    shop.produce(["c=3"])
    epoch = 1
    if "bundled" in request.node.callspec.id:
        with pytest.raises(StreamsInvalidTopologyEpochError, match=r"Set topology\.epoch to 2"):
            run(serdes.json, **{"state.dir": tmp_path / "new", "topology.epoch": 1})
        epoch = 2
    run(serdes.json, **{"state.dir": tmp_path / "new", "topology.epoch": epoch})
    assert shop.totals() == {"a": 1, "b": 2, "c": 3}


def test_some_letters_are_meant_and_the_others_stay(shop: Shop) -> None:
    shop.produce([f"a={number}?" for number in range(6)])
    shop.run(broken=True)
    assert shop("dlq", "replay", shop.letters, "--error", "KeyError", "--execute").err.endswith("replayed 0 records\n")
    assert shop("dlq", "replay", shop.letters, "--limit", 2, "--rate", 1_000, "--execute").code == 0
    at = shop.waiting()[0]["letter"]
    assert shop("dlq", "drop", shop.letters, "--at", at).err.splitlines() == [
        "1 dead letters would be dropped",
        "nothing is changed: use --execute to do it",
    ]
    assert shop("dlq", "drop", shop.letters, "--at", at, "--execute").err == "1 dead letters are dropped\n"
    rows = shop("dlq", "list", shop.letters, "--all", "--json").rows
    assert Counter(row["state"] for row in rows) == {"waiting": 3, "replayed": 2, "dropped": 1}
    (summary, *_) = shop("dlq", "list", shop.letters, "--summary", "--json").rows
    assert (summary["letters"], summary["error"]) == (3, "ValueError")


@pytest.mark.parametrize(
    ("count", "poisoned"), [(2_000, 200), pytest.param(100_000, 1_000, marks=[pytest.mark.full, pytest.mark.long])]
)
def test_only_the_fixed_step_gets_what_is_replayed(shop: Shop, count: int, poisoned: int, tmp_path: Path) -> None:
    """Beside and before the step that fails, others keep state: each record counts once there, and once behind the step."""
    again = f"{shop.id}-again"
    shop("topics", "create", again, "--partitions", 2)
    program = tmp_path / f"{shop.id.replace('-', '_')}_exact.py"
    program.write_text(ADDED_UP.format(orders=shop.orders, again=again, counts=shop.counts), encoding="utf-8")
    every = count // poisoned
    lines = [f"kind{number % 7}={number}{'?' if number % every == 3 else ''}" for number in range(count)]
    shop.produce(lines)
    shop.run_program(program, "broken")
    assert len(shop.waiting()) == poisoned
    replay = ("dlq", "replay", shop.letters, "--app", f"{program}:fixed", "--exact", "--execute")
    assert shop("dlq", "replay", shop.letters, "--exact").code == 2
    refused = shop(*replay)
    assert (refused.code, "would process these records a second time: --to TOPIC" in refused.err) == (2, True)
    done = shop(*replay, "--to", again)
    assert (done.code, done.err.splitlines()[-1]) == (0, f"replayed {poisoned:,} records")
    assert shop(*replay, "--to", again).err.splitlines()[-1] == "replayed 0 records"
    shop.run_program(program, "fixed")
    assert shop.totals() == expected(lines) | Counter(f"number of {line.partition('=')[0]}" for line in lines)


ADDED_UP = """from topology import StreamsBuilder, serdes


def program(amount):
    builder = StreamsBuilder()
    orders = builder.stream("{orders}", key=serdes.string, value=serdes.string)
    numbers = orders.group_by_key(value=serdes.string).count(store="numbers").to_stream()
    numbers.map(lambda kind, number: ("number of " + kind, number)).to("{counts}", key=serdes.string, value=serdes.long)
    fresh = orders.merge(builder.stream("{again}", key=serdes.string, value=serdes.string), name="with-replayed")
    amounts = fresh.map_values(amount, name="amount").group_by_key(value=serdes.long)
    totals = amounts.reduce(lambda a, b: a + b, store="totals").to_stream()
    totals.to("{counts}", key=serdes.string, value=serdes.long)
    return builder.build()


broken = program(lambda text: int(text))
fixed = program(lambda text: int(text.removesuffix("?")))
"""


def test_letters_go_to_a_topic_of_their_own(shop: Shop) -> None:
    shop.produce(["a=1?"])
    shop.run(broken=True)
    other = f"{shop.id}-again"
    for execute in ((), ("--execute",)):
        gone = shop("dlq", "replay", shop.letters, "--to", other, *execute)
        assert (gone.code, f"no such topic: {other}" in gone.err) == (2, True)
    shop("topics", "create", other, "--partitions", 1)
    assert shop("dlq", "replay", shop.letters, "--to", other, "--execute").code == 0
    (row,) = shop("consume", other, "--json").rows
    assert (row["key"], row["value"]) == ("a", "1?")


def test_it_is_not_guessed_where_records_belong_after_partitions_were_added(shop: Shop) -> None:
    keys = [f"kind{number}" for number in range(12)]
    shop.produce([f"{key}=1?" for key in keys])
    shop.run(broken=True)
    shop("topics", "add-partitions", shop.orders, "--partitions", 5)
    seen = shop("dlq", "replay", shop.letters)
    assert (seen.code, "and the keys are placed as if it had 2." in seen.err) == (0, True)
    refused = shop("dlq", "replay", shop.letters, "--execute")
    assert (refused.code, "`--partition-by key` writes" in refused.err) == (2, True)
    assert len(shop.waiting()) == len(keys)
    done = shop("dlq", "replay", shop.letters, "--partition-by", "key", "--limit", 9, "--execute")
    assert done.err.splitlines()[-1] == "replayed 9 records"
    done = shop("dlq", "replay", shop.letters, "--partition-by", "origin", "--execute")
    assert done.err.splitlines()[-1] == "replayed 3 records"
    rows = shop("consume", shop.orders, "--json", "--headers").rows
    replayed = {row["key"]: row["partition"] for row in rows if row["headers"]}
    by_key = {key for key, partition in replayed.items() if partition == partition_for_key(key.encode(), 5)}
    by_origin = {key for key, partition in replayed.items() if partition == partition_for_key(key.encode(), 2)}
    assert len(replayed) == len(keys)
    assert len(by_key) >= 9
    assert by_key | by_origin == set(keys)


def test_letters_are_not_replayed_to_their_own_topic(shop: Shop) -> None:
    refused = shop("dlq", "replay", shop.letters, "--to", shop.letters, "--execute")
    assert (refused.code, "they would count as replayed" in refused.err) == (2, True)


def test_a_letter_at_which_the_application_stopped_is_left(shop: Shop) -> None:
    shop.produce(["a=1?"])
    with pytest.raises(Exception, match="invalid literal"):
        shop.run(broken=True, **{"processing.exception.handler": "fail", "processing.guarantee": "at_least_once"})
    done = shop("dlq", "replay", shop.letters, "--execute")
    assert "left out: 1 dead letter: the application stopped at this record" in done.err
    assert [row["state"] for row in shop.waiting()] == ["stopped"]
    shop.run(broken=False)
    assert shop.totals() == {"a": 1}


def test_values_are_shown_by_the_serdes_of_the_application(shop: Shop, tmp_path: Path) -> None:
    program = tmp_path / f"{shop.id.replace('-', '_')}.py"
    program.write_text(
        "from topology import StreamsBuilder, serdes\n"
        "builder = StreamsBuilder()\n"
        f"numbers = builder.stream({shop.orders!r}, key=serdes.string, value=serdes.json)\n"
        "numbers.foreach(lambda key, value: None)\n"
        "numbers.map_values(lambda value: value['amount']).foreach(lambda key, value: None)\n"
        "topology = builder.build()\n"
    )
    shop.produce(['a={"amount": "1?"}'])
    shop.run(broken=True)
    (row,) = shop.waiting()
    shown = shop("dlq", "show", shop.letters, row["letter"], "--app", f"{program}:topology", "--json")
    assert shown.rows[0]["value"] == {"amount": "1?"}
    assert "amount" in shop("dlq", "show", shop.letters, row["letter"]).out
    shown = shop("dlq", "show", shop.letters, row["letter"], "--app", f"{program}:topology")
    assert 'value: {"amount":"1?"}' in shown.out.splitlines()


def test_mistakes_are_named(shop: Shop) -> None:
    assert shop("dlq", "list", "nothing-here").code == 2
    wrong = shop("dlq", "show", shop.letters, "first")
    assert (wrong.code, "PARTITION:OFFSET" in wrong.err) == (2, True)
    absent = shop("dlq", "show", shop.letters, "0:99")
    assert (absent.code, "there is no dead letter at 0:99" in absent.err) == (2, True)
    assert shop("dlq", "list", shop.letters, "--from", "yesterday").code == 2


def test_ordinary_records_are_counted_and_left_alone(shop: Shop) -> None:
    shop.produce(["a=1", "a=2?"])
    shop.run(broken=True)
    said = f"ignored 2 records of {shop.orders} without any of the headers"
    for arguments in (("list", "--all", "--json"), ("replay", "--execute"), ("drop", "--execute")):
        done = shop("dlq", arguments[0], shop.orders, *arguments[1:])
        assert (done.code, done.out, said in done.err) == (0, "", True), arguments
    assert "no dead letters" not in shop("dlq", "list", shop.letters).err
    assert len(shop.waiting()) == 1


def test_the_step_that_failed_and_the_ones_before_it_are_told_apart(shop: Shop, tmp_path: Path) -> None:
    program = tmp_path / f"{shop.id.replace('-', '_')}_twice.py"
    program.write_text(
        f"""from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
orders = builder.stream("{shop.orders}", key=serdes.string, value=serdes.string).flat_map_values(str.split, name="split")
orders.map_values(int, name="amount").group_by_key(value=serdes.long).reduce(lambda a, b: a + b, store="totals", name="sum")
topology = builder.build()
""",
        encoding="utf-8",
    )
    for offset, step in enumerate(("amount", "sum")):
        said = {
            "__streams.errors.topic": shop.orders,
            "__streams.errors.offset": offset,
            "__streamsrt.letter.node": step,
        }
        headers = [word for name, text in said.items() for word in ("--header", f"{name}={text}")]
        assert shop("produce", shop.letters, *headers, stdin="1 2\n").code == 0
    told = shop("dlq", "replay", shop.letters, "--app", f"{program}:topology").err.splitlines()
    before = "keep state or give several results (split): they may have processed these records already"
    assert sum(f"steps before amount {before}" in line for line in told) == 1
    assert sum(f"steps before sum {before}" in line for line in told) == 1
    refused = shop("dlq", "replay", shop.letters, "--app", f"{program}:topology", "--exact", "--execute")
    assert (refused.code, "the replay is not exact, and nothing is changed: steps before amount" in refused.err) == (
        2,
        True,
    )
    assert len(shop.waiting()) == 2
    assert [line for line in told if "the step that failed" in line] == [
        "sum, the step that failed, keeps state: it may have updated its state before it failed, and would update it again"
    ]


class Letters:
    """A dead-letter topic with letters of records that failed at the same offset."""

    def __init__(self, shop: Shop, network: NetworkThread) -> None:
        self._shop = shop
        self._collector = RecordCollector(network.producer.send, lambda _topic: 2)
        self._network = network

    def write(self, key: str, value: str, step: str = "parse") -> None:
        context = ErrorContext(
            topic=self._shop.orders,
            partition=0,
            offset=7,
            node=step,
            timestamp=5_000,
            source_key=key.encode(),
            source_value=value.encode(),
            source_timestamp=5_000,
        )
        self.write_of(context)

    def write_of(self, context: ErrorContext) -> None:
        letter = dead_letter(context, ValueError("no such thing"), self._shop.letters)
        self._collector.add(self._shop.letters, [letter.key], [letter.value], [5_000], [letter.headers], 0)
        self._collector.flush()
        self._network.producer.flush()


def test_headers_of_one_name_are_all_shown(shop: Shop) -> None:
    context = ErrorContext(
        topic=shop.orders,
        partition=0,
        offset=7,
        node="parse",
        timestamp=5_000,
        source_key=b"a",
        source_value=b"1?",
        source_headers=(("h", b"21"), ("h", None)),
        source_timestamp=5_000,
    )
    with connected(shop.servers, shop.letters) as network:
        Letters(shop, network).write_of(context)
    (shown,) = shop("dlq", "show", shop.letters, "0:0", "--json").rows
    assert shown["headers"] == [["h", "21"], ["h", None]]


def test_another_record_at_the_offset_of_a_replayed_one_is_replayed_too(shop: Shop) -> None:
    """The source topic was deleted and created anew, or the application reads it again from its start."""
    with connected(shop.servers, shop.letters) as network:
        letters = Letters(shop, network)
        letters.write("a", "1?")
        letters.write("a", "1?", step="again")
        assert "replayed 1 record" in shop("dlq", "replay", shop.letters, "--execute").err
        letters.write("b", "2?")
        assert len(shop.waiting()) == 1
        assert "replayed 1 record" in shop("dlq", "replay", shop.letters, "--execute").err
        letters.write("b", "2?")
    assert shop.waiting() == [], "what was replayed is in its topic again"
    rows = shop("dlq", "list", shop.letters, "--all", "--json").rows
    at = max((row["letter"] for row in rows), key=lambda position: int(position[2:]))
    (shown,) = shop("dlq", "show", shop.letters, at, "--json").rows
    assert (shown["value"], shown["state"]) == ("2?", "replayed")
    left = shop("dlq", "replay", shop.letters, "--execute")
    assert "left out: 1 dead letter: another dead letter of the same record was replayed" in left.err
    assert "replayed 0 records" in left.err
    assert "replayed 1 record" in shop("dlq", "replay", shop.letters, "--at", at, "--execute").err
    assert "no waiting dead letter" in shop("dlq", "replay", shop.letters, "--at", at, "--execute").err
