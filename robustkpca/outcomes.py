"""How a command ends: every outcome has an exit code, and a mistake one line on stderr."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress

import click

from robustkpca.errors import UserError, plain

DONE, INCOMPLETE, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
_STREAM = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT)
"""What writing to a stream may fail with."""


def outcome(run: Callable[[], int]) -> int:
    """Run something, and turn whatever becomes of it into its exit code and at most one line on stderr."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except UserError as error:
        say(str(error))
        return WRONG_INPUT
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        mend = f"; '{context.command_path} --help' shows how" if context else ""
        say(error.format_message().rstrip(".") + mend)
        return WRONG_INPUT
    except (KeyboardInterrupt, click.Abort):
        say("interrupted; the same command continues where it stopped")
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None or error.errno not in (*_STREAM, errno.EPIPE):
            raise
        with open(os.devnull, "w") as nowhere:  # so that what is left is not tried once more at the end
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            return DONE
        say(f"the output cannot be written: {error.strerror}")
        return WRONG_INPUT
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError) or _reader_has_gone():  # click and rich leave in this way
            return DONE
        say(f"a model or a plug-in ended the program with sys.exit({error.code!r}); expected it to return or to raise")
        return WRONG_INPUT


def say(message: str) -> None:
    """Write one line to stderr."""
    print(f"robustkpca: {plain(message)}", file=sys.stderr)


def _reader_has_gone() -> bool:
    """Tell whether standard output is a pipe that nobody reads any more."""
    with suppress(OSError, ValueError, AttributeError):  # no descriptor, or a system without poll
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    return False
