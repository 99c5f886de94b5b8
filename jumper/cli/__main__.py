"""`python -m jumper.cli` is `jumper`."""

from __future__ import annotations

import sys

from jumper.cli import main

sys.exit(main())
