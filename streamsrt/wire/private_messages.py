"""Messages that are not Kafka's, as in :mod:`streamsrt.wire.schema_table`: what our members of a classic group
exchange.

They are the user data of a ConsumerProtocolSubscription or a ConsumerProtocolAssignment; brokers do not read them. They
have one version, and new fields are tagged fields, which older readers skip (KIP-482).
"""

PRIVATE_TABLE = """\
StreamsrtAssignment data - 0-0 0+ ; ProcessId:uuid Unique:int32 Generation:int32 GroupEpoch:int32 GroupDigest:uuid
 Tasks:RoleTasks TargetAsGiven:bool Target:RoleTasks Status:[]StatusEntry ErrorCode:int16 ErrorText:string?=null
 SendTopology:bool RejoinAfterMs:int64=-1
 RecoveryLag:int32 OffsetIntervalMs:int32 Why:string?=null Waits:[]TopicWaits#0
 IsSameTopology:bool#1 Setbacks:[]int32#2 Awaits:bool#3 ; RoleTasks Active:[]TaskIds
 Standby:[]TaskIds Warmup:[]TaskIds ; TaskIds SubtopologyId:string Partitions:[]int32 ; StatusEntry Code:int8 Detail:string ;
 TopicWaits Topic:string SubtopologyIds:[]string
StreamsrtSubscription data - 0-0 0+ ; Unique:int32 ProcessId:uuid UserEndpoint:Endpoint?=null ClientTags:[]KeyValue
 Features:int32 TopologyEpoch:int32 TopologyDigest:uuid Topology:bytes?=null Held:RoleTasks Echo:EchoedTarget?=null
 Offsets:[]TaskOffset EndOffsets:[]TaskOffset Flags:int8 ; Endpoint Host:string Port:uint16 ; KeyValue Key:string
 Value:string ; RoleTasks Active:[]TaskIds Standby:[]TaskIds Warmup:[]TaskIds ; TaskIds SubtopologyId:string
 Partitions:[]int32 ; EchoedTarget Generation:int32 GroupEpoch:int32 GroupDigest:uuid AsHeld:bool Target:RoleTasks
 Waits:[]TopicWaits#0 Setbacks:[]int32#1 ; TopicWaits Topic:string SubtopologyIds:[]string ;
 TaskOffset SubtopologyId:string Partition:int32 Offset:int64
"""
