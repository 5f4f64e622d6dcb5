"""``python -m coordinator``."""

from __future__ import annotations

import sys

from coordinator.server.main import main

sys.exit(main())
