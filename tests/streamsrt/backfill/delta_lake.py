"""A lake of Delta, in a process of its own, since Spark takes packages when it starts only: planned, then changed, then run.

    python -m tests.streamsrt.backfill.delta_lake SERVERS FOLDER

``FOLDER/lake`` has the rows as JSON. Plans ``FOLDER/path`` and ``FOLDER/table`` have the same lake, by its path or its name.
"""

from __future__ import annotations

import sys
from pathlib import Path

from streamsrt.backfill import Backfill, Lake
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.backfill.spark.session import QUICK_START, open_session
from tests.streamsrt.backfill.scene import APPLICATION

PACKAGE = "io.delta:delta-spark_2.13:4.2.0"
SPARK_HAS = (
    *("org.slf4j:slf4j-api", "org.apache.logging.log4j:log4j-slf4j2-impl", "org.apache.logging.log4j:log4j-api"),
    *("org.apache.logging.log4j:log4j-core", "org.roaringbitmap:RoaringBitmap", "com.github.luben:zstd-jni"),
    *("com.fasterxml.jackson.core:jackson-databind", "commons-pool:commons-pool", "commons-logging:commons-logging"),
)
"""Not downloaded: where Maven knows one of these and has no file of it, Spark's resolver looks no further."""
CONF = {
    **QUICK_START,
    "spark.jars.packages": PACKAGE,
    "spark.jars.excludes": ",".join(SPARK_HAS),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "2",
}
COLUMNS = {
    "key": "airline",
    "value": "to_json(struct(flight, origin, destination, delay), map('ignoreNullFields', 'false'))",
    "timestamp": "at",
    "partition": "shard",
    "offset": "number",
}


def main() -> None:
    servers, folder = sys.argv[1], Path(sys.argv[2])
    session = open_session("local[2]", conf=CONF)
    try:
        spark, root = session.spark, folder / "delta"
        rows = spark.read.json(str(folder / "lake")).selectExpr("* except (at)", "cast(at as timestamp) as at")
        half = "number % 2 = 0"
        rows.where(half).write.format("delta").partitionBy("day").save(str(root))
        rows.where(f"not ({half})").write.format("delta").mode("append").save(str(root))
        lakes = {
            "path": Lake(root, columns=COLUMNS, format="delta"),
            "table": Lake(f"delta.`{root}`", columns=COLUMNS, format="table"),
        }
        plans = {name: Backfill(folder / name, bootstrap_servers=servers) for name in lakes}
        for name, lake in lakes.items():
            made = plans[name].plan(APPLICATION, application_id="flights", sources={"departures": lake})
            print(name, "version", *(each.version for each in made.lakes))
        spark.sql(f"DELETE FROM delta.`{root}` WHERE {half}")
        rows.write.format("delta").mode("append").save(str(root))
        for plan in plans.values():
            plan.run(SparkEngine())
    finally:
        session.close()


if __name__ == "__main__":
    main()
