"""Settings in Java properties files, as Java reads them."""

from __future__ import annotations

import pytest

from streamsrt.cli.properties import read_properties
from streamsrt.errors import ConfigError

FILE = r"""
# a comment
! another one \
application.id=shop
bootstrap.servers : 127.0.0.1:9092,\
                    127.0.0.1:9093
commit.interval.ms 100
  linger.ms  =  5  
path=C\:\\data\tx
sasl.jaas.config=org.apache.Login required username="a" password="b=c:d #e";
umlaut=\u00e4\u00f6
a\ key\=with\:all=value\ 
empty=
twice=1
twice=2
last=goes \
on"""  # noqa: W291


def test_a_file_is_read_as_java_reads_it() -> None:
    assert read_properties(FILE, "app.properties") == {
        "application.id": "shop",
        "bootstrap.servers": "127.0.0.1:9092,127.0.0.1:9093",
        "commit.interval.ms": "100",
        "linger.ms": "5",
        "path": "C:\\data\tx",
        "sasl.jaas.config": 'org.apache.Login required username="a" password="b=c:d #e";',
        "umlaut": "äö",
        "a key=with:all": "value ",
        "empty": "",
        "twice": "2",
        "last": "goes on",
    }
    assert read_properties("a=1\r\nb=2\rc=3", "x") == {"a": "1", "b": "2", "c": "3"}


@pytest.mark.parametrize("line", ["linger.ms", "=5", ": 5", "linger.ms  "])
def test_what_is_no_setting_is_named(line: str) -> None:
    with pytest.raises(ConfigError, match=r"app.properties .*: expected KEY=VALUE"):
        read_properties(line, "app.properties")
