"""Orders, lines and totals as pydantic models, dataclasses and TypedDicts: also for programs in environments without this
package."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel
from typing_extensions import TypedDict


class AddressModel(BaseModel):
    city: str
    zip: int


class ItemModel(BaseModel):
    sku: str
    count: int


class OrderModel(BaseModel):
    id: int
    customer: str
    cents: int
    currency: str
    address: AddressModel
    items: list[ItemModel]
    note: str


class LineModel(BaseModel):
    cents: int
    city: str


class TotalModel(BaseModel):
    cents: int
    orders: int
    city: str


@dataclass
class AddressData:
    city: str
    zip: int


@dataclass
class ItemData:
    sku: str
    count: int


@dataclass
class OrderData:
    id: int
    customer: str
    cents: int
    currency: str
    address: AddressData
    items: list[ItemData]
    note: str


@dataclass
class LineData:
    cents: int
    city: str


@dataclass
class TotalData:
    cents: int
    orders: int
    city: str


class AddressDict(TypedDict):
    city: str
    zip: int


class ItemDict(TypedDict):
    sku: str
    count: int


class OrderDict(TypedDict):
    id: int
    customer: str
    cents: int
    currency: str
    address: AddressDict
    items: list[ItemDict]
    note: str


class TotalDict(TypedDict):
    cents: int
    orders: int
    city: str
