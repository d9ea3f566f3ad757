"""For tests of your own code: what does it do when the lock is lost? See docs/pytest.md.

The fixtures themselves, `holdfast` and `once_across_workers`, are in the package `holdfast_pytest`, which pytest loads.
"""

from .controls import Controls
from .once import Once, shared_folder

__all__ = ["Controls", "Once", "shared_folder"]
