from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

import orjson
from pydantic import BaseModel

from streamsrt.backfill.json_text import json_text


class Item(BaseModel):
    name: str
    due: date
    tags: list[str]


@dataclass
class Order:
    item: Item
    number: UUID


def test_a_model_is_written_by_its_fields() -> None:
    order = Order(Item(name="a", due=date(2026, 1, 2), tags=["x"]), UUID(int=7))
    assert orjson.loads(json_text(order)) == {
        "item": {"name": "a", "due": "2026-01-02", "tags": ["x"]},
        "number": "00000000-0000-0000-0000-000000000007",
    }


def test_what_json_has_no_form_for_is_its_text() -> None:
    assert json_text({1: 2j}) == '{"1":"2j"}'
