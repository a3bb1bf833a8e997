"""Errors that tests of the package expect."""
import partita


def expect_error(text, call):
    """The error of a call, whose text has `text` in it."""
    try:
        call()
    except partita.PartitaError as error:
        assert text in str(error), f"{text!r} not in {error}"
        return error
    raise AssertionError(f"no error, expected one with {text!r}")
