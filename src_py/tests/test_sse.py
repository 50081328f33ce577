"""The server-sent events parser and writer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsp.sse import EventTooLargeError, Parser, comment, encode

Event = tuple[str, bytes]
NO_LIMIT = 10**9

# What makes a difference to the format, so that random bodies are mostly nearly valid.
TOKENS = st.sampled_from(
    [
        b"data: ", b"data:", b"data", b"event: ", b"event:x", b"id: 1", b"retry: 5", b": note",
        b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b":", b" ", b"a", b"\xef", b"\xbb", b"\xbf",
        b"\xe2\x80\xa8", b"\x0b", b"data: {}\n\n", b"event: e\ndata: {}\n\n",
        b"event: e\r\ndata: {}\r\n\r\n",
    ]
)  # fmt: skip
BODIES = st.one_of(st.lists(TOKENS, max_size=24).map(b"".join), st.binary(max_size=60))


def parse(pieces: Iterable[bytes], limit: int = NO_LIMIT) -> list[Event | str]:
    """The events of a body that came in `pieces`, and "too large" where it ends so."""
    parser = Parser(limit)
    found: list[Event | str] = []
    try:
        for piece in pieces:
            found += parser.feed(piece)
        found += parser.close()
    except EventTooLargeError as error:
        return [*found, *error.events, "too large"]
    return found


def cut(body: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = [0, *sorted(place % (len(body) + 1) for place in cuts), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(places)]


def by_the_standard(body: bytes) -> list[Event]:
    """An independent reading, line by line, of a whole body whose end counts as a blank line."""
    body = body.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[Event] = []
    name = ""
    data: list[bytes] = []
    for line in [*body.split(b"\n"), b""]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data:
                events.append((name, b"\n".join(data)))
            name, data = "", []
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return events


@given(BODIES)
def test_any_bytes_give_what_the_standard_says(body: bytes) -> None:
    assert parse([body]) == by_the_standard(body)


@given(BODIES, st.lists(st.integers(0, 500), max_size=6), st.sampled_from([NO_LIMIT, 2, 5, 9]))
def test_cuts_make_no_difference(body: bytes, cuts: list[int], limit: int) -> None:
    whole = parse([body], limit)
    assert parse(cut(body, cuts), limit) == whole
    assert parse([body[at : at + 1] for at in range(len(body))], limit) == whole


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
def test_an_event_leaves_with_the_chunk_that_holds_its_last_byte(line_end: bytes) -> None:
    parser = Parser()
    body = b"event: e" + line_end + b"data: 1" + line_end + line_end
    if line_end == b"\r\n":
        body = body[:-1]  # the carriage return has ended the blank line already
    for place in range(len(body) - 1):
        assert parser.feed(body[place : place + 1]) == []
    assert parser.feed(body[-1:]) == [("e", b"1")]


def test_the_line_feed_of_a_carriage_return_may_come_later() -> None:
    parser = Parser()
    assert parser.feed(b"data: 1\r\n\r") == [("", b"1")]
    assert parser.feed(b"") == []
    assert parser.feed(b"\ndata: 2\r") == []
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\r") == [("", b"2")]
    assert parser.feed(b"\rdata: 3\n\r") == [("", b"3")]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        pytest.param(b"data: a\r\n\n", [("", b"a")], id="mixed line ends"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [("", b"a")], id="byte order mark"),
        pytest.param(b"data: \xef\xbb\xbfa\n\n", [("", b"\xef\xbb\xbfa")], id="no mark later on"),
        pytest.param(b"data: a\ndata:b\ndata:  c\n\n", [("", b"a\nb\n c")], id="several lines"),
        pytest.param(b"data\n\n", [("", b"")], id="data without a colon"),
        pytest.param(b"data:\n\n", [("", b"")], id="empty data"),
        pytest.param(b"event: e\n\ndata: a\n\n", [("", b"a")], id="a name without data"),
        pytest.param(b"event: a\nevent:b\ndata: 1\n\n", [("b", b"1")], id="the last name counts"),
        pytest.param(b"data: 1\nevent: e\n\n", [("e", b"1")], id="name after data"),
        pytest.param(b": note\n\n:\n\ndata: a\n: more\n\n", [("", b"a")], id="comments"),
        pytest.param(b"id: 1\nretry: 9\nx: y\ndata: a\n\n", [("", b"a")], id="other fields"),
        pytest.param(b"dataset: a\n Data: b\n\n", [], id="nearly a field"),
        pytest.param(b"data: a\xe2\x80\xa8\xc2\x85\x0b\x0c\n\n", [("", b"a\xe2\x80\xa8\xc2\x85\x0b\x0c")],
                     id="other line separators are data"),
        pytest.param(b"event: \xff\ndata: \xff\n\n", [("\ufffd", b"\xff")], id="not UTF-8"),
        pytest.param(b"data: a\n\n\n\n\n\ndata: b\n\n", [("", b"a"), ("", b"b")], id="blank lines"),
        pytest.param(b"data: a\n\ndata: b", [("", b"a"), ("", b"b")], id="no blank line at the end"),
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\xef\xbb", [], id="half a byte order mark"),
    ],
)  # fmt: skip
def test_the_format(body: bytes, events: list[Event]) -> None:
    assert parse([body]) == events
    assert parse([body[at : at + 1] for at in range(len(body))]) == events


def test_pending_counts_the_bytes_that_wait() -> None:
    parser = Parser()
    assert parser.feed(b"\xef\xbb") == []
    assert parser.pending == 2
    assert parser.feed(b"\xbfdata: 1\n") == []
    assert parser.pending == 8
    assert parser.feed(b"\n: ") == [("", b"1")]
    assert parser.pending == 2
    assert parser.close() == []
    assert parser.pending == 0


def test_an_event_over_the_limit_is_an_error_that_keeps_what_came_before() -> None:
    with pytest.raises(EventTooLargeError, match="limit of 10 bytes") as caught:
        Parser(10).feed(b"data: 1\n\ndata: 2345678\n\n")
    assert caught.value.events == [("", b"1")]
    assert caught.value.limit == 10
    with pytest.raises(EventTooLargeError) as caught:
        Parser(10).feed(b"data: 1\n\ndata: 2345678")
    assert caught.value.events == [("", b"1")]


def test_an_event_of_exactly_the_limit_passes() -> None:
    assert parse([b"data: 2345\n\n" * 5], limit=10) == [("", b"2345")] * 5


def test_a_long_event_in_pieces_costs_time_in_proportion_to_its_bytes() -> None:
    """Every piece is kept as it came, and joined once: no piece is looked at twice."""
    parser = Parser()
    piece = b"x" * 2**14
    assert parser.feed(b"data: ") == []
    for _ in range(20 * 2**20 // len(piece)):
        assert parser.feed(piece) == []
    assert all(kept is piece for kept in parser._block[1:])
    ((_, data),) = parser.feed(b"\n\n")
    assert len(data) == 20 * 2**20


@given(st.text(max_size=20), st.sampled_from(["", "e", "content_block_delta"]))
def test_what_is_written_is_read_again(text: str, event: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    assert parse([comment(text), encode(text, event), comment("")]) == [(event, lines.encode())]
    assert encode(text.encode(), event) == encode(text, event)


def test_a_name_with_a_line_break_is_refused() -> None:
    with pytest.raises(ValueError, match="line break"):
        encode(b"", "a\nb")


def test_the_writers_form() -> None:
    assert encode("a") == b"data: a\n\n"
    assert encode(b"a\nb", "e") == b"event: e\ndata: a\ndata: b\n\n"
    assert comment("keep-alive") == b": keep-alive\n\n"
