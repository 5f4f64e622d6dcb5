from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

import orjson
import pytest
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


@pytest.mark.parametrize(
    "value", [Order(Item(name="a", due=date(2026, 1, 2), tags=["x"]), UUID(int=7))], ids=["nested"]
)
def test_a_model_is_written_by_its_fields(value: Order) -> None:
    assert orjson.loads(json_text(value)) == {
        "item": {"name": "a", "due": "2026-01-02", "tags": ["x"]},
        "number": "00000000-0000-0000-0000-000000000007",
    }


def test_what_json_has_no_form_for_is_its_text() -> None:
    assert json_text({1: 2j}) == '{"1":"2j"}'
