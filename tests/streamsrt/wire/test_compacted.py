"""Batches written anew, with records of very many headers."""

from __future__ import annotations

import pytest

from streamsrt.wire import compacted
from streamsrt.wire.compacted import compacted_batch
from streamsrt.wire.records import RecordColumns, decode_batch, encode_batch, read_header
from streamsrt.wire.records.columns import Headers

SOME: Headers = (("", None), ("h\u00e4", b""), ("h" * 70, b"v" * 200), ("long", b"x" * 20_000))


def written(columns: RecordColumns, headers_max: int, monkeypatch: pytest.MonkeyPatch, horizon: int | None) -> bytes:
    monkeypatch.setattr(compacted, "_MANY_HEADERS", headers_max)
    size = len(columns)
    full = encode_batch([b"k"] * size, [b"v"] * size, list(columns.timestamps))
    return compacted_batch(read_header(full)._replace(base_offset=5), columns, delete_horizon_ms=horizon)


@pytest.mark.parametrize("horizon", [None, 3, 1 << 41])
@pytest.mark.parametrize("timestamps", [[7, 1, 1 << 40], [-1, -1, -1], [0, -1, 5]], ids=str)
def test_many_headers_are_written_as_few_are(
    monkeypatch: pytest.MonkeyPatch, timestamps: list[int], horizon: int | None
) -> None:
    columns = RecordColumns(
        [b"a", None, b"k" * 300], [None, b"", b"v" * 70_000], timestamps, 5, 8, None, [SOME, (), SOME * 50]
    )
    in_turns = written(columns, 100, monkeypatch, horizon)
    at_once = written(columns, 1_000_000, monkeypatch, horizon)
    assert in_turns == at_once
    assert decode_batch(in_turns).headers == columns.headers


def test_only_records_of_very_many_headers_are_written_that_way(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    slowly = compacted._in_turns

    def counted(columns: RecordColumns, *rest: object) -> bytes:
        asked.append(len(columns))
        return slowly(columns, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(compacted, "_in_turns", counted)
    for count, expected in ((50_000, []), (50_001, [1])):
        columns = RecordColumns([b"a"], [b"v"], [1], 0, 1, None, [(("h", b"v"),) * count])
        compacted_batch(read_header(encode_batch([b"a"], [b"v"], [1])), columns)
        assert asked == expected
