"""The how-to pages: their programs run and give what they say."""

from __future__ import annotations

import doctest
import re

import pytest

from tests.fixtures_brokers import ROOT
from tests.schema_registry import running_registry

PAGES = ("concepts", "howto", "java", "quix", "serdes")


@pytest.mark.parametrize("name", PAGES)
def test_the_programs_of_a_page_give_what_they_say(name: str) -> None:
    path = ROOT / "docs" / f"{name}.md"
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    with running_registry() as registry:
        names = {"__name__": name, "URL": registry.url}
        example = doctest.DocTestParser().get_doctest("\n".join(blocks), names, name, str(path), 0)
        assert example.examples
        runner.run(example, out=said.append)
    assert not runner.failures, "".join(said)
