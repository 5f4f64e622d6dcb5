"""What these applications must give, worked out in plain Python from what they are given.

Each function gets the input as ``(key, value, seconds)`` in the order of the numbers and gives the records of each output
topic: keys as they are, values as they look behind their codec.
"""

from __future__ import annotations

import base64
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import cast

from tests.streamsrt.faust.committed import Row
from tests.streamsrt.faust.sides import CASES, seconds_of

Result = tuple[str | None, object]
Input = tuple[str | None, object, float]
Fields = dict[str, object]


def _fields(value: object) -> Fields:
    assert isinstance(value, dict)
    return value


def _words(given: list[Input]) -> Iterator[tuple[str, Result]]:
    counts: Counter[str] = Counter()
    for _, line, _ in given:
        for word in str(line).split():
            counts[word] += 1
            yield "words-out", (word, counts[word])


def _views(given: list[Input]) -> Iterator[tuple[str, Result]]:
    counts: Counter[str] = Counter()
    for _, view, _ in given:
        page = str(_fields(view)["page"])
        counts[page] += 1
        yield "views-out", (page, counts[page])


def _withdrawals(given: list[Input]) -> Iterator[tuple[str, Result]]:
    for _, value, _ in given:
        each = {key: str(field) for key, field in _fields(value).items()}
        if (amount := Decimal(each["amount"])) > 500:
            yield "withdrawals-copies", (None, {**each, "country": None})
            alert = {"account": each["account"], "amount": str(amount * 2), "day": each["at"][:10]}
            yield "withdrawals-out", (None, alert)


def _clicks(given: list[Input]) -> Iterator[tuple[str, Result]]:
    seen: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for key, value, second in given:
        button, at = str(_fields(value)["button"]), cast("float", _fields(value)["at"])
        seen[button].append((at, second))
        now = sum(other // 10 == at // 10 for other, _ in seen[button])
        # A window of 20 s begins every 10 s: the latest that has this second, and the latest that had it 20 s ago.
        starts = second // 10 * 10, (second - 20) // 10 * 10
        hops = [sum(start <= other < start + 20 for _, other in seen[button]) for start in starts]
        yield "clicks-out", (key, [button, now, *hops])


def _payments(given: list[Input]) -> Iterator[tuple[str, Result]]:
    balances: dict[str, tuple[int, list[str]]] = {}
    for _, value, _ in given:
        name, amount = str(_fields(value)["account"]), cast("int", _fields(value)["amount"])
        balance, tags = balances.get(name, (0, []))
        balances[name] = balance + amount, [*tags[-2:], str(amount)]
        balance, tags = balances[name]
        if amount == 13:
            del balances[name]
        yield "payments-out", (name, {"owner": name.upper(), "balance": balance, "tags": tags})


def _chain(given: list[Input]) -> Iterator[tuple[str, Result]]:
    for _, value, _ in given:
        square = cast("int", value) ** 2
        yield "chain-out", (f"key-{square % 5}", square + 1)


def _visitors(given: list[Input]) -> Iterator[tuple[str, Result]]:
    sets: defaultdict[str | None, set[str]] = defaultdict(set)
    for page, value, _ in given:
        if value == "user-0":
            sets[page].discard("user-1")
        sets[page].add(str(value))
        yield "visitors-out", (page, len(sets[page]))


def _relay(given: list[Input]) -> Iterator[tuple[str, Result]]:
    for key, value, _ in given:
        yield "relay-out", (key, {"value": cast("int", value) * 3})


def _batches(given: list[Input]) -> Iterator[tuple[str, Result]]:
    for _, value, _ in given:
        yield "batches-out", (None, cast("int", value) * 2)


def _lookups(given: list[Input]) -> Iterator[tuple[str, Result]]:
    for key, value, _ in given:
        yield "lookups-out", (key, cast("int", value) * 10)


def _pipes(given: list[Input]) -> Iterator[tuple[str, Result]]:
    for key, value, _ in given:
        if cast("int", value) % 2:
            yield "pipes-out", (key, cast("int", value) + 1)


def _fragile(given: list[Input]) -> Iterator[tuple[str, Result]]:
    for key, value, _ in given:
        if value == "{" or _fields(value)["number"] == "50":
            continue
        yield "fragile-out", (key, {**_fields(value), "number": int(str(_fields(value)["number"]))})


def _setops(given: list[Input]) -> Iterator[tuple[str, Result]]:
    sets: defaultdict[str | None, set[str]] = defaultdict(set)
    for key, value, _ in given:
        operation, names = cast("tuple[str, list[str]]", value)
        found = sets[key]
        if operation in ("add", "discard"):
            answer = getattr(found, operation)(names[0])
        elif operation == "clear":
            answer = found.clear()
        else:
            answer = getattr(found, operation)(set(names))
        result = sorted(answer) if isinstance(answer, set) else answer
        yield "setops-out", (key, [operation, result, sorted(found), len(found), "a" in found])


def _shapes(given: list[Input]) -> Iterator[tuple[str, Result]]:
    for key, value, _ in given:
        shape = _fields(value)
        if "radius" in shape:
            yield "shapes-out", (key, ["Circle", cast("float", shape["radius"]) * 2])
        else:
            radii = [each["radius"] for each in cast("list[Fields]", shape["inside"])]
            yield "shapes-out", (key, ["Boxes", shape["width"], radii])


def _asks(given: list[Input]) -> Iterator[tuple[str, Result]]:
    yield "asks-out", ("one", 42)
    for number in range(20):
        yield "asks-out", ("many", number * 2)


_PROGRAMS: dict[str, Callable[[list[Input]], Iterator[tuple[str, Result]]]] = {
    "words": _words,
    "views": _views,
    "withdrawals": _withdrawals,
    "clicks": _clicks,
    "payments": _payments,
    "chain": _chain,
    "visitors": _visitors,
    "relay": _relay,
    "batches": _batches,
    "lookups": _lookups,
    "fragile": _fragile,
    "pipes": _pipes,
    "setops": _setops,
    "shapes": _shapes,
    "asks": _asks,
}


def expected(name: str, count: int) -> dict[str, list[Result]]:
    """What a program makes of the first ``count`` inputs, by topic."""
    make = CASES[name].given
    given = [] if make is None else [(*make(number), seconds_of(number)) for number in range(count)]
    found: dict[str, list[Result]] = {}
    for topic, result in _PROGRAMS[name](given):
        found.setdefault(topic, []).append(result)
    return found


def seen(name: str, row: Row) -> Result:
    """What a record says. Where it has headers, they must be those of the program."""
    key, raw, headers = row
    assert headers == ((("by", b"last"),) if name == "chain" else ())
    assert raw is not None
    value = json.loads(base64.b64decode(raw) if name == "relay" else raw)
    if isinstance(value, dict):
        value.pop("__faust", None)
    return None if key is None else key.decode(), value
