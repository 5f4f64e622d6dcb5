"""The system tests with ``--group-protocol=classic``: which of them can't hold there, and why.

    python -m pytest --group-protocol=classic tests/system
    python -m pytest --group-protocol=classic --kafka-version=3.9.1 tests/system

The second one runs what has an Apache Kafka half over that version of it, from 2.8 on.
"""

from __future__ import annotations

from collections.abc import Mapping

OWN_PROTOCOL = "it says itself which protocol its applications use"
STREAMS_GROUPS = (
    "it is about settings or answers of streams groups; test_classic_group and test_classic_upgrade have its like"
)
BEFORE = "it is about what is refused before an instance joins"
BROKER = "it is about a broker that lacks streams groups"
AT_ONCE = "a static member of a classic group that was killed and comes back goes on at once"
ITS_END = "calls under way end before an instance leaves; test_failures stops one that leaves a classic group"
OWN_DISK = "it is about the instance's own disk"
RECORDS = "it is about single records, which are handled the same whoever assigns the tasks"
SESSION = "how long a killed member stays is its own setting in a classic group"

NOT_IN_CLASSIC_GROUPS: Mapping[str, str] = {
    "test_bad_days::test_a_first_version_without_its_source_topics_may_be_corrected": OWN_PROTOCOL,
    "test_bad_days::test_a_state_file_is_damaged": OWN_DISK,
    "test_bad_days::test_input_that_comes_while_an_internal_topic_is_deleted_is_not_lost": OWN_PROTOCOL,
    "test_bad_days::test_the_disk_is_full": OWN_DISK,
    "test_bad_days::test_the_state_directory_can_not_be_written": OWN_DISK,
    "test_bad_input::test_a_broker_that_is_too_old": BROKER,
    "test_bad_input::test_a_broker_without_streams_groups": BROKER,
    "test_bad_input::test_a_processor_can_not_be_closed": ITS_END,
    "test_bad_input::test_a_record_is_not_deserialisable": RECORDS,
    "test_bad_input::test_a_setting_has_a_typing_mistake": BEFORE,
    "test_bad_input::test_a_setting_has_a_typing_mistake_in_a_program": BEFORE,
    "test_bad_input::test_nobody_answers_at_the_address": BEFORE,
    "test_bad_input::test_something_else_answers_at_the_address": BEFORE,
    "test_bad_input::test_the_state_directory_is_in_use": OWN_DISK,
    "test_bad_input::test_the_topology_has_a_mistake": BEFORE,
    "test_bad_input::test_there_is_no_such_module": BEFORE,
    "test_classic_group": OWN_PROTOCOL,
    "test_classic_upgrade": OWN_PROTOCOL,
    "test_demo": OWN_PROTOCOL,
    "test_frozen_disk": "no application of it joins a group",
    "test_in_flight": OWN_PROTOCOL,
    "test_interrupted": ITS_END,
    "test_protocol_change": OWN_PROTOCOL,
    "test_refused_records": RECORDS,
    "test_refused_version": OWN_PROTOCOL,
    "test_send_back": SESSION,
    "test_static_members::test_after_a_kill_it_waits_for_its_own_session_to_end": AT_ONCE,
    "test_static_members::test_so_it_does_when_it_comes_back_by_the_classic_protocol": AT_ONCE,
    "test_until_quiet": OWN_PROTOCOL,
    "test_upgrade::test_a_group_forgets_its_topology_when_it_has_no_members": STREAMS_GROUPS,
    "test_upgrade::test_a_version_that_cannot_run_is_refused_and_the_old_members_go_on": STREAMS_GROUPS,
    "test_upgrade::test_another_topology_under_the_same_epoch_is_refused_before_a_record_is_processed": STREAMS_GROUPS,
    "test_upgrade::test_apache_kafka_updates_no_topology_and_the_message_says_what_works": STREAMS_GROUPS,
    "test_upgrade::test_numbered_subtopologies_hand_over_what_they_share": STREAMS_GROUPS,
    "test_upgrade::test_state_that_carries_over_is_not_restored": STREAMS_GROUPS,
    "test_upgrade::test_the_demo_of_the_upgrade": OWN_PROTOCOL,
    "test_upgrade::test_the_example_of_the_kip_with_clients_a_b_and_c": STREAMS_GROUPS,
    "test_upgrade::test_the_way_back_is_a_further_epoch": STREAMS_GROUPS,
    "test_warm_up": STREAMS_GROUPS,
}
"""By module, or by module and test with ``::`` between."""


def not_in_classic_groups(module: str, test: str) -> str | None:
    """Why a test is left out; None: it is not."""
    name = test.partition("[")[0]
    return NOT_IN_CLASSIC_GROUPS.get(module) or NOT_IN_CLASSIC_GROUPS.get(f"{module}::{name}")
