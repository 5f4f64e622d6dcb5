"""A lake of Avro, in a process of its own, since Spark takes packages when it starts only.

    python -m tests.streamsrt.backfill.avro_lake SERVERS FOLDER

``FOLDER/lake`` has the rows as JSON. The older half of the Avro files has the key in another column than the newer half.
Prints a line for each refusal, and computes the plan ``FOLDER/plan``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from streamsrt.backfill import Backfill, Lake
from streamsrt.backfill.errors import ArchiveError
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.backfill.spark.session import QUICK_START, open_session
from tests.streamsrt.backfill.delta_lake import COLUMNS, SPARK_HAS
from tests.streamsrt.backfill.scene import APPLICATION

PACKAGE = "org.apache.spark:spark-avro_2.13:4.2.0"
CONF = {
    **QUICK_START,
    "spark.jars.packages": PACKAGE,
    "spark.jars.excludes": ",".join(SPARK_HAS),
    "spark.sql.shuffle.partitions": "2",
}


def write(spark: SparkSession, folder: Path) -> Path:
    """Writes the lake, in folders of days."""
    root = folder / "avro"
    rows = spark.read.json(str(folder / "lake")).selectExpr("* except (at)", "cast(at as timestamp) as at")
    older = rows.where("number % 2 = 0").withColumnRenamed("airline", "carrier")
    older.write.format("avro").partitionBy("day").save(str(root))
    rows.where("number % 2 = 1").write.format("avro").mode("append").partitionBy("day").save(str(root))
    return root


def refuse(plan: Backfill, lake: Lake) -> None:
    try:
        plan.plan(APPLICATION, application_id="flights", sources={"departures": lake})
    except ArchiveError as error:
        print(error)


def main() -> None:
    servers, folder = sys.argv[1], Path(sys.argv[2])
    session = open_session("local[2]", conf=CONF)
    try:
        root = write(session.spark, folder)
        lake = Lake(root, columns={**COLUMNS, "key": "coalesce(airline, carrier)"}, format="avro")
        day = min(root.glob("day=*"))
        other, damaged = day / "z-other.avro", day / "damaged.avro"
        session.spark.sql("select 'late' as delay, 1 as number").coalesce(1).write.format("avro").save(
            f"{folder}/other"
        )
        other.write_bytes(next((folder / "other").glob("*.avro")).read_bytes())
        refuse(Backfill(folder / "other-plan", bootstrap_servers=servers), lake)
        other.unlink()
        damaged.write_text("no avro at all")
        refuse(Backfill(folder / "damaged-plan", bootstrap_servers=servers), lake)
        damaged.unlink()
        plan = Backfill(folder / "plan", bootstrap_servers=servers)
        plan.plan(APPLICATION, application_id="flights", sources={"departures": lake})
        plan.run(SparkEngine())
    finally:
        session.close()


if __name__ == "__main__":
    main()
