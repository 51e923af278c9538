"""From a file's bytes to text: UTF-8, at most 1 MiB, no NUL.

A UTF-8 byte-order mark and CRLF line ends change nothing about what was written, so they are
accepted and left out; a file in another encoding is refused.
"""

from typing import Final, NoReturn

from headbay.client.source.builder import StopReadingError
from headbay.domain.document import MAX_DOCUMENT_BYTES, Problem

__all__ = ["decode"]

_OTHER_MARKS: Final = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def decode(raw: bytes) -> str:
    """The text, every line ended by a newline character alone.

    Raises:
        StopReadingError: Too large, not UTF-8, or with a NUL.
    """
    if len(raw) > MAX_DOCUMENT_BYTES:
        _stop(
            "TOO_LARGE",
            f"more than {MAX_DOCUMENT_BYTES} bytes",
            "move long scripts into files, or split the workload",
        )
    for mark, encoding in _OTHER_MARKS.items():
        if raw.startswith(mark):
            _stop("BAD_ENCODING", f"{encoding}, not UTF-8", "save the file as UTF-8", 1)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8: byte 0x{raw[error.start]:02x}"
        _stop("BAD_ENCODING", message, "save the file as UTF-8", line)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        _stop("BAD_TEXT", "contains a NUL character", "remove it", line)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _stop(code: str, message: str, fix: str, line: int | None = None) -> NoReturn:
    raise StopReadingError(Problem(path="", code=code, message=message, fix=fix, line=line))
