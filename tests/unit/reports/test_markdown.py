from __future__ import annotations

import base64
import re

from hypothesis import given
from hypothesis import strategies as st

from noctuary.reports.markdown import as_data_uri, as_markdown_image


@given(st.binary(max_size=200))
def test_a_data_uri_holds_the_bytes(png: bytes) -> None:
    head, _, body = as_data_uri(png).partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(body, validate=True) == png


@given(st.text(max_size=60))
def test_whatever_the_alternative_text_it_is_one_markdown_image(alt: str) -> None:
    image = as_markdown_image(b"\x89PNG", alt)
    assert re.fullmatch(r"!\[[^\[\]()<>\n]*\]\(data:image/png;base64,iVBORw==\)", image)


def test_plain_alternative_texts_stay() -> None:
    assert as_markdown_image(b"", "recall@10 of 3 arms").startswith("![recall@10 of 3 arms](")
