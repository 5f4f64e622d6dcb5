"""Parameters: those that a path does not have are refused, and the page in docs names those that it has."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from streamsrt.errors import UserError
from streamsrt.http.answers import KEY_QUERIES, PROBES, QUERIES, VIEWS
from streamsrt.http.instance import Instance
from streamsrt.http.questions import PARAMETERS, Question, parameters, shown_path
from tests.streamsrt.http.test_load import Store, address, get, store

__all__ = ["address", "store"]

PAGE = Path(__file__).parents[3] / "docs" / "queries.md"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (
            "/stores/counts/keys/a?as-of=1795400000000",
            "unknown parameters: 'as-of'. /stores/STORE/keys/KEY takes the parameters as_of, partition, position, stale",
        ),
        ("/stores/counts/keys/a?limit=5", "unknown parameters: 'limit'. /stores/STORE/keys/KEY takes"),
        ("/stores/counts/range?prefx=c1&from=a", "unknown parameters: 'prefx'. /stores/STORE/range takes"),
        ("/stores/counts/sessions?to=5", "unknown parameters: 'to'. /stores/STORE/sessions takes"),
        ("/stores/counts/windows/a?form=5&too=7", "unknown parameters: 'form', 'too'. /stores/STORE/windows/KEY takes"),
        ("/stores/counts/range?partition=0&partition=1", "partition: given several times, give it once"),
        ("/stores/counts/keys/a?partition=0,1", "partition=0,1: a key is in one partition, give one"),
        ("/tasks?task=0_1", "unknown parameters: 'task'. /tasks takes no parameters"),
        ("/?store=counts", "unknown parameters: 'store'. / takes no parameters"),
        ("/topology?as=text", "unknown parameters: 'as'. /topology takes the parameters format"),
        ("/topology?format=txt", "format=txt: give json or text"),
    ],
)
def test_the_question_that_was_meant_is_answered_or_none(store: Store, address: str, path: str, says: str) -> None:
    store.let_go.set()
    status, body = get(address, path)
    assert (status, body["error"]) == (400, "User")
    assert body["message"].startswith(says)


@pytest.mark.parametrize("path", ["/healthz?verbose", "/readyz?probe=kubelet"])
def test_a_probe_does_not_fail_for_a_parameter(address: str, path: str) -> None:
    assert get(address, path)[0] == 200


class Noted(dict[str, str]):
    """Parameters that remember which of them somebody looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


@pytest.mark.parametrize("path", sorted({*QUERIES, *KEY_QUERIES}))
def test_a_path_reads_all_parameters_that_it_has(store: Store, path: str) -> None:
    store.has_it, params = False, Noted()
    question = Question.of(params, forwarded=True, max_rows=10)
    query: Callable[..., object] = {**QUERIES, **KEY_QUERIES}[path]
    query(cast(Instance, store), "counts", *(["a"] if path in KEY_QUERIES else []), question)
    assert params.names >= set(PARAMETERS[path])


def test_every_path_but_probes_and_metrics_has_its_parameters() -> None:
    assert set(PARAMETERS) == {"/", "/topology", *VIEWS, *QUERIES, *KEY_QUERIES}
    with pytest.raises(UserError):
        parameters("/stores", [("", "")])


def test_the_page_has_the_parameters_of_each_path() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    told = {
        path: re.findall(r"`(\w+)`", row[2]) if len(row) > 2 else []
        for row in rows
        for path in re.findall(r"`(/[^`]*)`", row[0])
    }
    known = {shown_path(path): sorted(names) for path, names in PARAMETERS.items()}
    assert {path: sorted(names) for path, names in told.items()} == {
        **known,
        **{path: [] for path in ("/metrics", *PROBES)},
    }
    explained = [name for row in rows if len(row) == 2 for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(explained) == sorted({name for names in PARAMETERS.values() for name in names})
