"""The command `holdfast`, as it is started: Ctrl-C while Python still imports it ends it as it ends any program, without a word.

This is a package of its own because to import a part of holdfast is to import holdfast, which is what takes the time. For the
same reason it imports nothing: `signal` itself takes as long as half of Python's own start.
"""

import _signal  # type: ignore[import-not-found]  # what `signal` is made of, and a part of the interpreter


def main() -> int:
    heard = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler  # else somebody has it ignored: nohup, say
    if heard:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from holdfast.cli import main as command

    if heard:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    return command()
