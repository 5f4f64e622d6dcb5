"""A function of the user's that makes records of a lake's rows, as ``MODULE:FUNCTION``: data frame in, data frame out.

1. It runs in the driver, when the plan is made and at each run. Both must run the same source: the plan has the digests of
   its module and of what that imports.
2. It gets the rows that the filter leaves. Its rows may be fewer or more, and of other columns; the files that they come
   from are not known any more.
3. Times without a zone are UTC in it, also in its functions in Python, which run in workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pyspark.errors import PySparkException

from streamsrt.application import (
    changed_modules,
    imported_digests,
    load_object,
    module_and_attribute,
    module_digest,
)
from streamsrt.backfill.errors import BackfillError, PlanError
from streamsrt.backfill.spark.zones import utc_in_this_process
from streamsrt.errors import StreamsError
from streamsrt.wording import error_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT = "records"
"""The function, where only the module is named."""


def mapping_digests(mapping: str) -> dict[str, str]:
    """The sources that a mapping consists of, by module."""
    return {module_and_attribute(mapping)[0]: module_digest(mapping), **imported_digests(mapping)}


def full_name(mapping: str) -> str:
    """The name with its function."""
    return mapping if ":" in mapping else f"{mapping}:{DEFAULT}"


def mapping_function(topic: str, mapping: str) -> Callable[[DataFrame], object]:
    """The function of that name. Raises BackfillError where it is none, and the errors of its module."""
    function = load_object(mapping, DEFAULT)
    if not callable(function):
        raise BackfillError(
            f"--lake-map {topic}={mapping} is no function: give one that takes a data frame and returns one"
        )
    return cast("Callable[[DataFrame], object]", function)


def mapped(rows: DataFrame, topic: str, mapping: str, digests: dict[str, str]) -> DataFrame:
    """The rows that the function makes. Raises PlanError where its source was changed, BackfillError where it fails or
    returns something else."""
    changed = changed_modules(digests)
    if changed:
        raise PlanError(
            f"{', '.join(changed)}, which makes the records of {topic} (--lake-map {topic}={mapping}), differs from what "
            "the plan was made with: bring it back, or plan again in another --dir"
        )
    function = mapping_function(topic, mapping)
    try:
        with utc_in_this_process():
            made = function(rows)
    except (StreamsError, PySparkException):
        raise
    except Exception as error:
        raise BackfillError(f"{mapping}, which makes the records of {topic}, raised {error_text(error)}") from error
    if not isinstance(made, type(rows)):
        raise BackfillError(
            f"{mapping}, which makes the records of {topic}, returned {type(made).__name__} instead of a data frame"
        )
    return made
