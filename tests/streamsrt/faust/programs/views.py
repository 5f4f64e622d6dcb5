"""Counts views of pages: a model, grouped by one of its fields."""

from typing import Any

import faust
from made_app import make_app, named


class View(faust.Record):
    """Somebody looks at a page."""

    page: str
    user: str


app = make_app("views")
views = app.topic(named("views-in"), value_type=View)
out = app.topic(named("views-out"), key_type=str, key_serializer="raw", value_type=int)
by_page = app.Table("by_page", default=int)


@app.agent(views, name="views.count")
async def count(stream: Any) -> None:
    async for view in stream.group_by(View.page):
        by_page[view.page] += 1
        await out.send(key=view.page, value=by_page[view.page])


if __name__ == "__main__":
    app.main()
