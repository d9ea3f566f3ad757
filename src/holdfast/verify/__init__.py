"""`holdfast verify URL`: an attack on your own servers, to see whether what is promised is kept there.

Worker processes take locks of every kind and change a register that checks tokens, while a nemesis pauses and kills them, cuts,
delays and loses their answers, and restarts servers if they are its own. Everything is written down as it happens; what was
written down is then judged, and may be kept and judged again.

    plan       what a run is to do, and may do
    worker     a process: turns · journal · register
    running    one run: crew · ways · own · nemesis · cleaning
    record     the run in one file
    judging    the verdict: checkers
    report     the verdict as a page: drawing
"""

from .judging import Judgement, judge
from .plan import Plan
from .record import Record
from .running import run

__all__ = ["Plan", "run", "Record", "judge", "Judgement"]
