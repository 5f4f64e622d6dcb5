from __future__ import annotations

import pytest

from coordinator.log import LogConfig


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_bytes": 13},
        {"segment_bytes": 1 << 31},
        {"segment_ms": 0},
        {"max_message_bytes": -1},
        {"index_interval_bytes": -1},
        {"cleanup_policy": frozenset({"delet"})},
    ],
)
def test_settings_out_of_bounds_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="|".join(wrong)):
        LogConfig(**wrong)  # type: ignore[arg-type]
