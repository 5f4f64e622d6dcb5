"""What a notebook shows of collected records."""

from __future__ import annotations

from xml.etree import ElementTree

from streamsrt.runtime.results import CollectedRecords, ResultRecord


def test_records_are_shown_as_a_table_for_each_topic() -> None:
    records = [ResultRecord(1, 7, 5_000, "a<b>", {"n": 1}, ()), ResultRecord(1, 8, 5_001, b"\xff", None, ())]
    shown = CollectedRecords({"out&in": records, "other": []})._repr_html_()
    first, other = ElementTree.fromstring(f"<all>{shown}</all>").findall("table")
    assert [each.text for each in first.iter("th")] == ["key", "value", "timestamp", "partition", "offset"]
    rows = [[cell.text for cell in row.iter("td")] for row in first.iter("tr")][1:]
    assert rows == [["a<b>", "{'n': 1}", "5000", "1", "7"], [r"b'\xff'", "None", "5001", "1", "8"]]
    assert [each.findtext("caption") for each in (first, other)] == ["out&in: 2 records", "other: 0 records"]


def test_a_long_result_is_shown_in_part() -> None:
    records = [ResultRecord(0, offset, 0, "k", "v" * 1_000, ()) for offset in range(101)]
    shown = CollectedRecords({"out": records})._repr_html_()
    assert "out: the first 100 of 101 records" in shown
    assert shown.count("<tr>") == 101
    assert "v" * 200 not in shown
    assert "v" * 199 + "…" in shown


def test_without_topics_it_says_so() -> None:
    assert CollectedRecords()._repr_html_() == "<p>no topics</p>"
