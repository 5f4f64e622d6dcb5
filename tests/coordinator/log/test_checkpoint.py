from __future__ import annotations

from pathlib import Path

from coordinator.log.checkpoint import CHECKPOINT_FILE, Checkpoint


def test_a_checkpoint_is_read_back_or_not_at_all(tmp_path: Path) -> None:
    assert Checkpoint.load(tmp_path) is None
    checkpoint = Checkpoint(recovery_point=12, log_start_offset=3, epochs=((0, 0), (4, 9)))
    for durable in (False, True):
        checkpoint.save(tmp_path, durable=durable)
        assert Checkpoint.load(tmp_path) == checkpoint
    path = tmp_path / CHECKPOINT_FILE
    content = path.read_bytes()
    assert [entry.name for entry in tmp_path.iterdir()] == [CHECKPOINT_FILE], "no temporary file stays"
    for cut in range(len(content) - 1):
        path.write_bytes(content[:cut])
        assert Checkpoint.load(tmp_path) is None
    for position in range(len(content) - 1):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert Checkpoint.load(tmp_path) is None
