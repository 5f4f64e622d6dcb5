"""What ``java/StreamsJoin.java`` does, in Python: the same join, with the same names.

The topics are those of the environment variables JOINING_INPUT and JOINING_OUTPUT.
"""

from __future__ import annotations

import os

from topology import StreamsBuilder, Topology, serdes


def _joining() -> Topology:
    builder, text = StreamsBuilder(), {"key": serdes.string, "value": serdes.string}
    books = builder.table(os.environ["JOINING_INPUT"], store="books", key=serdes.string, value=serdes.string)
    authors = builder.table(
        os.environ["JOINING_INPUT"] + "-authors", store="authors", key=serdes.string, value=serdes.string
    )
    shelved = books.left_join(authors, "{} by {}".format, foreign_key=author_of, name="shelf", store="shelved", **text)
    shelved.to_stream().to(os.environ["JOINING_OUTPUT"], key=serdes.string, value=serdes.string)
    return builder.build()


def author_of(book: str) -> str:
    return book.split("/")[0]


topology = _joining()
