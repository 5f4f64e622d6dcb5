"""The Kafka wire protocol: messages, frames, record batches. A leaf: both the client and the bundled broker use it.

Nothing here does input or output; everything is bytes in, values out, and the reverse.

=====================  ==========================================================================
module                 what is in it
=====================  ==========================================================================
``schema_table``       generated: the compact table of every message schema
``schema``             reads the table: fields, versions, API keys and their ranges; builds the classes
``primitives``         varints, strings, arrays, :class:`DecodeError`
``messages``           messages, request and response frames, coordinator records to bytes and back
``compiler``           writes and compiles one encoder and decoder per struct and version
``inspection``         finds the field that a refused message is wrong in
``types``              one slotted class per message, typed by the generated ``types.pyi``
``error_codes``        the numbered errors of the protocol, and which of them may be retried
``records``            record batches (magic 2) to and from columns
``compression``        the codecs of record batches, within a limit of decompressed bytes
``kernels``            the hottest loops over records, in C where they were built, and what stands in for them
``later_numpy``        numpy, which is loaded by the first run of many records
``murmur2``            the default partitioner of the Java client
``client_tags``        client tags of streams groups (KIP-1071) that mean something to our members and to the bundled
                       broker
``features``           features of ApiVersions by which a broker announces what it supports beyond its API versions
``topic_settings``     the settings of topics that Apache Kafka knows
``streams_user_data``  the user data of Java's Kafka Streams in a classic group: subscriptions and assignments
``compacted``          batches that lost records to compaction: the rest encoded again, everything else as it was
``packed``             a message as user data of the classic protocol: one byte, 0 plain or 1 compressed with zlib, and
                       then the message
``private_messages``   messages that are not Kafka's: what our members of a classic group say
``private_tags``       tagged fields that are not Kafka's: the bundled broker adds them to Kafka's messages, and our
                       clients read them
=====================  ==========================================================================
"""
