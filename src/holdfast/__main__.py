"""`python -m holdfast` is the command `holdfast`."""

import sys

from .cli import main

sys.exit(main())
