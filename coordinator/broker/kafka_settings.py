"""The settings of Apache Kafka 4.4's broker, by name and type: ``AbstractKafkaConfig.CONFIG_DEF``, internal ones too.

A properties file that starts Apache Kafka starts this broker. Settings without effect here are named in a warning; a
name that is in none of the tables is a typing mistake and refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from coordinator.broker.config_definitions import ConfigType, Definition

_TABLE = """
add.partitions.to.txn.retry.backoff.max.ms INT
add.partitions.to.txn.retry.backoff.ms INT
advertised.listeners LIST
alter.config.policy.class.name CLASS
alter.log.dirs.replication.quota.window.num INT
alter.log.dirs.replication.quota.window.size.seconds INT
authorizer.class.name STRING
auto.create.topics.enable BOOLEAN
auto.leader.rebalance.enable BOOLEAN
background.threads INT
broker.heartbeat.interval.ms INT
broker.id INT
broker.rack STRING
broker.session.timeout.ms INT
client.quota.callback.class CLASS
compression.gzip.level INT
compression.lz4.level INT
compression.type STRING
compression.zstd.level INT
config.providers LIST
connection.failed.authentication.delay.ms INT
connections.max.idle.ms LONG
connections.max.reauth.ms LONG
controlled.shutdown.enable BOOLEAN
controller.listener.names LIST
controller.performance.always.log.threshold.ms LONG
controller.performance.sample.period.ms LONG
controller.quorum.append.linger.ms INT
controller.quorum.auto.join.enable BOOLEAN
controller.quorum.bootstrap.servers LIST
controller.quorum.election.backoff.max.ms INT
controller.quorum.election.timeout.ms INT
controller.quorum.fetch.max.bytes INT
controller.quorum.fetch.snapshot.max.bytes INT
controller.quorum.fetch.timeout.ms INT
controller.quorum.request.timeout.ms INT
controller.quorum.retry.backoff.ms INT
controller.quorum.voters LIST
controller.quota.window.num INT
controller.quota.window.size.seconds INT
controller.socket.timeout.ms INT
cordoned.log.dirs LIST
create.topic.policy.class.name CLASS
default.replication.factor INT
delegation.token.expiry.check.interval.ms LONG
delegation.token.expiry.time.ms LONG
delegation.token.max.lifetime.ms LONG
delegation.token.secret.key PASSWORD
delete.records.purgatory.purge.interval.requests INT
delete.topic.enable BOOLEAN
early.start.listeners LIST
errors.deadletterqueue.auto.create.topics.enable BOOLEAN
errors.deadletterqueue.topic.name.prefix STRING
fetch.max.bytes INT
fetch.purgatory.purge.interval.requests INT
follower.fetch.last.tiered.offset.enable BOOLEAN
group.consumer.assignment.interval.ms INT
group.consumer.assignor.offload.enable BOOLEAN
group.consumer.assignors LIST
group.consumer.heartbeat.interval.ms INT
group.consumer.max.assignment.interval.ms INT
group.consumer.max.heartbeat.interval.ms INT
group.consumer.max.session.timeout.ms INT
group.consumer.max.size INT
group.consumer.migration.policy STRING
group.consumer.min.assignment.interval.ms INT
group.consumer.min.heartbeat.interval.ms INT
group.consumer.min.session.timeout.ms INT
group.consumer.regex.refresh.interval.ms INT
group.consumer.session.timeout.ms INT
group.coordinator.append.linger.ms INT
group.coordinator.background.threads INT
group.coordinator.cached.buffer.max.bytes INT
group.coordinator.rebalance.protocols LIST
group.coordinator.threads INT
group.initial.rebalance.delay.ms INT
group.max.session.timeout.ms INT
group.max.size INT
group.min.session.timeout.ms INT
group.share.assignment.interval.ms INT
group.share.assignor.offload.enable BOOLEAN
group.share.assignors LIST
group.share.delivery.count.limit INT
group.share.dlq.manager.class.name STRING
group.share.heartbeat.interval.ms INT
group.share.initialize.retry.interval.ms INT
group.share.max.assignment.interval.ms INT
group.share.max.delivery.count.limit INT
group.share.max.heartbeat.interval.ms INT
group.share.max.partition.max.record.locks INT
group.share.max.record.lock.duration.ms INT
group.share.max.session.timeout.ms INT
group.share.max.share.sessions INT
group.share.max.size INT
group.share.min.assignment.interval.ms INT
group.share.min.delivery.count.limit INT
group.share.min.heartbeat.interval.ms INT
group.share.min.partition.max.record.locks INT
group.share.min.record.lock.duration.ms INT
group.share.min.session.timeout.ms INT
group.share.partition.max.record.locks INT
group.share.persister.class.name STRING
group.share.record.lock.duration.ms INT
group.share.session.timeout.ms INT
group.streams.acceptable.recovery.lag LONG
group.streams.assignment.interval.ms INT
group.streams.assignor.offload.enable BOOLEAN
group.streams.assignors LIST
group.streams.heartbeat.interval.ms INT
group.streams.initial.rebalance.delay.ms INT
group.streams.max.assignment.interval.ms INT
group.streams.max.heartbeat.interval.ms INT
group.streams.max.session.timeout.ms INT
group.streams.max.size INT
group.streams.max.standby.replicas INT
group.streams.max.warmup.replicas INT
group.streams.min.assignment.interval.ms INT
group.streams.min.heartbeat.interval.ms INT
group.streams.min.session.timeout.ms INT
group.streams.min.task.offset.interval.ms INT
group.streams.num.standby.replicas INT
group.streams.num.warmup.replicas INT
group.streams.rack.aware.assignment.tags LIST
group.streams.session.timeout.ms INT
group.streams.task.offset.interval.ms INT
group.streams.topology.description.plugin.class CLASS
initial.broker.registration.timeout.ms INT
inter.broker.listener.name STRING
internal.metadata.delete.delay.millis LONG
internal.metadata.log.segment.bytes INT
internal.metadata.max.batch.size.in.bytes INT
kafka.metrics.polling.interval.secs INT
kafka.metrics.reporters LIST
leader.imbalance.check.interval.seconds LONG
listener.security.protocol.map STRING
listeners LIST
log.cleaner.backoff.ms LONG
log.cleaner.dedupe.buffer.size LONG
log.cleaner.delete.retention.ms LONG
log.cleaner.enable BOOLEAN
log.cleaner.io.buffer.load.factor DOUBLE
log.cleaner.io.buffer.size INT
log.cleaner.io.max.bytes.per.second DOUBLE
log.cleaner.max.compaction.lag.ms LONG
log.cleaner.min.cleanable.ratio DOUBLE
log.cleaner.min.compaction.lag.ms LONG
log.cleaner.threads INT
log.cleanup.policy LIST
log.dir LIST
log.dir.failure.timeout.ms LONG
log.dirs LIST
log.flush.interval.messages LONG
log.flush.interval.ms LONG
log.flush.offset.checkpoint.interval.ms INT
log.flush.scheduler.interval.ms LONG
log.flush.start.offset.checkpoint.interval.ms INT
log.index.interval.bytes INT
log.index.size.max.bytes INT
log.initial.task.delay.ms LONG
log.local.retention.bytes LONG
log.local.retention.ms LONG
log.message.timestamp.after.max.ms LONG
log.message.timestamp.before.max.ms LONG
log.message.timestamp.type STRING
log.preallocate BOOLEAN
log.remote.copy.lag.bytes LONG
log.remote.copy.lag.ms LONG
log.retention.bytes LONG
log.retention.check.interval.ms LONG
log.retention.hours INT
log.retention.minutes INT
log.retention.ms LONG
log.roll.hours INT
log.roll.jitter.hours INT
log.roll.jitter.ms LONG
log.roll.ms LONG
log.segment.bytes INT
log.segment.delete.delay.ms LONG
max.connection.creation.rate INT
max.connections INT
max.connections.per.ip INT
max.connections.per.ip.overrides STRING
max.decompressed.message.bytes INT
max.incremental.fetch.session.cache.slots INT
max.request.partition.size.limit INT
message.max.bytes INT
metadata.log.dir STRING
metadata.log.max.record.bytes.between.snapshots LONG
metadata.log.max.snapshot.interval.ms LONG
metadata.log.segment.bytes INT
metadata.log.segment.ms LONG
metadata.max.idle.interval.ms INT
metadata.max.retention.bytes LONG
metadata.max.retention.ms LONG
metric.reporters LIST
metrics.num.samples INT
metrics.recording.level STRING
metrics.sample.window.ms LONG
min.insync.replicas INT
node.id INT
num.io.threads INT
num.network.threads INT
num.partitions INT
num.recovery.threads.per.data.dir INT
num.replica.alter.log.dirs.threads INT
num.replica.fetchers INT
offset.metadata.max.bytes INT
offsets.commit.timeout.ms INT
offsets.load.buffer.size INT
offsets.retention.check.interval.ms LONG
offsets.retention.minutes INT
offsets.topic.compression.codec INT
offsets.topic.num.partitions INT
offsets.topic.replication.factor SHORT
offsets.topic.segment.bytes INT
principal.builder.class CLASS
process.roles LIST
producer.id.expiration.check.interval.ms INT
producer.id.expiration.ms INT
producer.purgatory.purge.interval.requests INT
queued.max.request.bytes LONG
queued.max.requests INT
quota.window.num INT
quota.window.size.seconds INT
remote.fetch.max.wait.ms INT
remote.list.offsets.request.timeout.ms LONG
remote.log.index.file.cache.total.size.bytes LONG
remote.log.index.file.cache.ttl.ms LONG
remote.log.manager.copier.thread.pool.size INT
remote.log.manager.copy.max.bytes.per.second LONG
remote.log.manager.copy.quota.window.num INT
remote.log.manager.copy.quota.window.size.seconds INT
remote.log.manager.expiration.thread.pool.size INT
remote.log.manager.fetch.max.bytes.per.second LONG
remote.log.manager.fetch.quota.window.num INT
remote.log.manager.fetch.quota.window.size.seconds INT
remote.log.manager.follower.thread.pool.size INT
remote.log.manager.task.interval.ms LONG
remote.log.manager.task.retry.backoff.max.ms LONG
remote.log.manager.task.retry.backoff.ms LONG
remote.log.manager.task.retry.jitter DOUBLE
remote.log.manager.thread.pool.size INT
remote.log.metadata.custom.metadata.max.bytes INT
remote.log.metadata.manager.class.name STRING
remote.log.metadata.manager.class.path STRING
remote.log.metadata.manager.impl.prefix STRING
remote.log.metadata.manager.listener.name STRING
remote.log.reader.max.pending.tasks INT
remote.log.reader.threads INT
remote.log.storage.manager.class.name STRING
remote.log.storage.manager.class.path STRING
remote.log.storage.manager.impl.prefix STRING
remote.log.storage.system.enable BOOLEAN
replica.fetch.backoff.ms INT
replica.fetch.max.bytes INT
replica.fetch.min.bytes INT
replica.fetch.response.max.bytes INT
replica.fetch.wait.max.ms INT
replica.high.watermark.checkpoint.interval.ms LONG
replica.lag.time.max.ms LONG
replica.selector.class STRING
replica.socket.receive.buffer.bytes INT
replica.socket.timeout.ms INT
replication.quota.window.num INT
replication.quota.window.size.seconds INT
request.timeout.ms INT
sasl.client.callback.handler.class CLASS
sasl.enabled.mechanisms LIST
sasl.jaas.config PASSWORD
sasl.kerberos.kinit.cmd STRING
sasl.kerberos.min.time.before.relogin LONG
sasl.kerberos.principal.to.local.rules LIST
sasl.kerberos.service.name STRING
sasl.kerberos.ticket.renew.jitter DOUBLE
sasl.kerberos.ticket.renew.window.factor DOUBLE
sasl.login.callback.handler.class CLASS
sasl.login.class CLASS
sasl.login.connect.timeout.ms INT
sasl.login.read.timeout.ms INT
sasl.login.refresh.buffer.seconds SHORT
sasl.login.refresh.min.period.seconds SHORT
sasl.login.refresh.window.factor DOUBLE
sasl.login.refresh.window.jitter DOUBLE
sasl.login.retry.backoff.max.ms LONG
sasl.login.retry.backoff.ms LONG
sasl.mechanism.controller.protocol STRING
sasl.mechanism.inter.broker.protocol STRING
sasl.oauthbearer.allow.unverified.audience BOOLEAN
sasl.oauthbearer.allow.unverified.issuer BOOLEAN
sasl.oauthbearer.assertion.algorithm STRING
sasl.oauthbearer.assertion.claim.aud STRING
sasl.oauthbearer.assertion.claim.exp.seconds INT
sasl.oauthbearer.assertion.claim.iss STRING
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN
sasl.oauthbearer.assertion.claim.nbf.seconds INT
sasl.oauthbearer.assertion.claim.sub STRING
sasl.oauthbearer.assertion.file STRING
sasl.oauthbearer.assertion.private.key.file STRING
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD
sasl.oauthbearer.assertion.template.file STRING
sasl.oauthbearer.client.credentials.client.id STRING
sasl.oauthbearer.client.credentials.client.secret PASSWORD
sasl.oauthbearer.clock.skew.seconds INT
sasl.oauthbearer.expected.audience LIST
sasl.oauthbearer.expected.issuer STRING
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG
sasl.oauthbearer.jwks.endpoint.url STRING
sasl.oauthbearer.jwt.retriever.class CLASS
sasl.oauthbearer.jwt.validator.class CLASS
sasl.oauthbearer.scope STRING
sasl.oauthbearer.scope.claim.name STRING
sasl.oauthbearer.sub.claim.name STRING
sasl.oauthbearer.token.endpoint.url STRING
sasl.server.callback.handler.class CLASS
sasl.server.max.receive.size INT
security.inter.broker.protocol STRING
security.providers STRING
server.max.startup.time.ms LONG
share.coordinator.append.linger.ms INT
share.coordinator.cached.buffer.max.bytes INT
share.coordinator.cold.partition.snapshot.interval.ms INT
share.coordinator.load.buffer.size INT
share.coordinator.snapshot.update.records.per.snapshot INT
share.coordinator.state.topic.compression.codec INT
share.coordinator.state.topic.min.isr SHORT
share.coordinator.state.topic.num.partitions INT
share.coordinator.state.topic.prune.interval.ms INT
share.coordinator.state.topic.replication.factor SHORT
share.coordinator.state.topic.segment.bytes INT
share.coordinator.threads INT
share.coordinator.write.timeout.ms INT
share.fetch.purgatory.purge.interval.requests INT
socket.connection.setup.timeout.max.ms LONG
socket.connection.setup.timeout.ms LONG
socket.listen.backlog.size INT
socket.receive.buffer.bytes INT
socket.request.max.bytes INT
socket.send.buffer.bytes INT
ssl.allow.dn.changes BOOLEAN
ssl.allow.san.changes BOOLEAN
ssl.cipher.suites LIST
ssl.client.auth STRING
ssl.enabled.protocols LIST
ssl.endpoint.identification.algorithm STRING
ssl.engine.factory.class CLASS
ssl.key.password PASSWORD
ssl.keymanager.algorithm STRING
ssl.keystore.certificate.chain PASSWORD
ssl.keystore.key PASSWORD
ssl.keystore.location STRING
ssl.keystore.password PASSWORD
ssl.keystore.type STRING
ssl.principal.mapping.rules STRING
ssl.protocol STRING
ssl.provider STRING
ssl.secure.random.implementation STRING
ssl.trustmanager.algorithm STRING
ssl.truststore.certificates PASSWORD
ssl.truststore.location STRING
ssl.truststore.password PASSWORD
ssl.truststore.type STRING
telemetry.max.bytes INT
transaction.abort.timed.out.transaction.cleanup.interval.ms INT
transaction.max.timeout.ms INT
transaction.partition.verification.enable BOOLEAN
transaction.remove.expired.transaction.cleanup.interval.ms INT
transaction.state.log.load.buffer.size INT
transaction.state.log.min.isr INT
transaction.state.log.num.partitions INT
transaction.state.log.replication.factor SHORT
transaction.state.log.segment.bytes INT
transaction.two.phase.commit.enable BOOLEAN
transactional.id.expiration.ms INT
unclean.leader.election.enable BOOLEAN
unclean.leader.election.interval.ms LONG
unstable.api.versions.enable BOOLEAN
unstable.feature.versions.enable BOOLEAN
"""


def _definitions() -> Mapping[str, Definition]:
    rows = (line.split() for line in _TABLE.splitlines() if line)
    return MappingProxyType({name: Definition(name, ConfigType[kind], "") for name, kind in rows})


KAFKA_SETTINGS = _definitions()
"""By name. Of bounds only the type is known here."""

_OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.((?:plain|oauthbearer|gssapi|scram-sha-(?:256|512))\.)?(?P<key>.+)")
_OF_PLUGINS = ("config.providers.", "rsm.config.", "rlmm.config.")
_ELSEWHERE = {
    "listeners": "--host and --port",
    "advertised.listeners": "advertised.host and advertised.port",
    "log.dir": "--data-dir",
    "log.dirs": "--data-dir",
}


def kafka_setting(key: str) -> Definition | None:
    """Returns Kafka's definition of this name, also of one listener (``listener.name.NAME.KEY``), or of a plug-in."""
    if key.startswith(_OF_PLUGINS):
        return Definition(key, ConfigType.STRING, "")
    of_listener = _OF_LISTENER.fullmatch(key)
    return KAFKA_SETTINGS.get(key if of_listener is None else of_listener["key"])


def ignored_text(keys: Iterable[str]) -> str:
    """Returns the warning about Kafka's settings without effect on this broker."""
    named = (f"{key} (here: {_ELSEWHERE[key]})" if key in _ELSEWHERE else key for key in sorted(keys))
    return f"settings of Apache Kafka that this broker does not act on: {', '.join(named)}"
