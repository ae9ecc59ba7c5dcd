"""The one exception for mistakes a user can mend."""


class V0BenchError(Exception):
    """A mistake in the input, not in the program: its message says what is wrong and what to do.

    Command lines print the message without a traceback and exit with status 2.
    """
