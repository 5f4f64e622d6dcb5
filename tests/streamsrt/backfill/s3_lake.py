"""A lake on an S3 server, in a process of its own, since Spark takes packages when it starts only: planned and run; then
planned, changed and refused.

    python -m tests.streamsrt.backfill.s3_lake SERVERS FOLDER

``FOLDER/lake`` has the rows as JSON. The plans are ``FOLDER/s3a`` and ``FOLDER/changed``. Prints why the second one
does not run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer

from streamsrt.backfill import Backfill, Lake
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.backfill.spark.session import QUICK_START, hadoop_version, open_session
from tests.streamsrt.backfill.delta_lake import SPARK_HAS
from tests.streamsrt.backfill.lake_programs import COLUMNS
from tests.streamsrt.backfill.scene import APPLICATION

BUCKET = "shop"


def main() -> None:
    servers, folder = sys.argv[1], Path(sys.argv[2])
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        run(servers, folder, f"http://{host}:{port}")
    finally:
        server.stop()


def run(servers: str, folder: Path, endpoint: str) -> None:
    login = {"aws_access_key_id": "name", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    bucket = boto3.client("s3", endpoint_url=endpoint, **login)
    bucket.create_bucket(Bucket=BUCKET)
    root = folder / "lake"
    paths = [path for path in sorted(root.rglob("*.json")) if path.stat().st_size]
    for path in paths:
        bucket.put_object(Bucket=BUCKET, Key=f"departures/{path.relative_to(root)}", Body=path.read_bytes())
    conf = {
        **QUICK_START,
        "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",
        "spark.jars.excludes": ",".join((*SPARK_HAS, "org.wildfly.openssl:wildfly-openssl")),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": login["region_name"],
        "spark.hadoop.fs.s3a.access.key": login["aws_access_key_id"],
        "spark.hadoop.fs.s3a.secret.key": login["aws_secret_access_key"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    session = open_session("local[2]", conf=conf)
    try:
        lake = Lake(f"s3a://{BUCKET}/departures", columns=COLUMNS, format="json")
        plans = [Backfill(folder / name, bootstrap_servers=servers) for name in ("s3a", "changed")]
        for plan in plans:
            plan.plan(APPLICATION, application_id="flights", sources={"departures": lake})
        plans[0].run(SparkEngine())
        changed = paths[0].read_bytes()
        bucket.put_object(Bucket=BUCKET, Key=f"departures/{paths[0].relative_to(root)}", Body=changed + changed)
        try:
            plans[1].run(SparkEngine())
        except BackfillError as error:
            print(error)
    finally:
        session.close()


if __name__ == "__main__":
    main()
