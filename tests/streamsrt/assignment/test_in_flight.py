"""What is said of repartition topics that are read to the end can be read back from it."""

from __future__ import annotations

from streamsrt.assignment.in_flight import Backlog, draining_detail, draining_topics


def test_the_topics_that_are_drained_are_in_what_is_said() -> None:
    found = [
        Backlog("app-by.word-repartition", 3, 20, 1),
        Backlog("app-nobody-repartition", 2, 5, 0),
        Backlog("app-by_term-repartition", 4, 7, 2),
    ]
    said = f"a member joined; {draining_detail(found).rstrip('.')}; a member left"
    assert draining_topics(said) == {"app-by.word-repartition", "app-by_term-repartition"}
    assert draining_topics("app-by.word-repartition (topology epoch 3)") == frozenset()
