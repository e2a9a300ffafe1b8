"""From settings to a model: what is known of it, what is refused, its identity."""

from __future__ import annotations

import base64
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.errors import ConfigError, EncoderError
from noctuary.core.settings import PROVIDERS, EncoderSettings
from noctuary.embed import hosted as queries
from noctuary.embed.documents import Embedded, embed_texts, text_key, vector_kind
from noctuary.embed.fingerprint import EncoderFingerprint, require_unit_rows
from noctuary.embed.hosted import (
    BLANK,
    HOSTED_FILE,
    HOSTED_PROVIDERS,
    BudgetError,
    HostedClient,
    HostedEncoder,
    HostedModel,
    HostedQueryEncoder,
    ProviderDownError,
    Purpose,
    RequestRefusedError,
    Spending,
    cut_bytes,
    estimate_tokens,
    hosted_model,
    plan_requests,
    price_of,
    read_batch,
    read_description,
    sent_text,
    write_description,
)
from noctuary.work.content import ContentStore
from tests.rooms.embed.conftest import VARIABLE, NewClient
from tests.support.fake_server import KEY, Fault, vector_of


def settings(**changes: object) -> EncoderSettings:
    values = {"provider": "voyage", "model": "voyage-4", "api_key_variable": "K"}
    return EncoderSettings(**{**values, **changes})  # type: ignore[arg-type]


def model(**changes: object) -> HostedModel:
    return hosted_model(settings(**changes))


def test_every_provider_of_the_settings_has_models_and_limits() -> None:
    assert set(HOSTED_PROVIDERS) == set(PROVIDERS[1:])
    for form in HOSTED_PROVIDERS.values():
        for name, facts in form.models.items():
            assert facts.dimension not in facts.lengths, name
            assert facts.max_tokens <= form.request_tokens, name


@pytest.mark.parametrize(
    ("provider", "name", "dimension", "max_tokens", "usd"),
    [
        ("voyage", "voyage-4-large", 1024, 32_000, 0.12),
        ("voyage", "voyage-3.5-lite", 1024, 32_000, 0.02),
        ("openai", "text-embedding-3-small", 1536, 8_192, 0.02),
        ("openai", "text-embedding-3-large", 3072, 8_192, 0.13),
        ("cohere", "embed-v4.0", 1536, 128_000, 0.12),
    ],
)
def test_published_facts(
    provider: str, name: str, dimension: int, max_tokens: int, usd: float
) -> None:
    found = model(provider=provider, model=name)
    assert (found.dimension, found.facts.max_tokens) == (dimension, max_tokens)
    assert price_of(settings(provider=provider, model=name)) == usd


def test_a_shorter_length_is_asked_for_only_where_the_model_has_it() -> None:
    assert model(dimension=256).dimension == 256
    assert model(dimension=1024) == model()
    with pytest.raises(ConfigError, match=r"is 300; .* 256, 512, 1024, 2048"):
        model(dimension=300)
    assert model(provider="openai", model="text-embedding-3-small", dimension=300).dimension == 300
    with pytest.raises(ConfigError, match="1 to 1536"):
        model(provider="openai", model="text-embedding-3-small", dimension=1537)
    with pytest.raises(ConfigError, match="gives 1536"):
        model(provider="openai", model="text-embedding-ada-002", dimension=512)


def test_of_an_unknown_model_length_and_price_must_be_told() -> None:
    with pytest.raises(ConfigError, match=r"encoder\.dimension"):
        model(model="voyage-99")
    found = model(model="voyage-99", dimension=640)
    assert (found.dimension, found.facts.dimension, found.facts.max_tokens) == (640, 640, 8_192)
    with pytest.raises(ConfigError, match="usd_per_million_tokens"):
        price_of(settings(model="voyage-99"))
    assert price_of(settings(model="voyage-99", usd_per_million_tokens=0.3)) == 0.3
    assert price_of(settings(usd_per_million_tokens=9.0)) == 9.0, "before the published one"
    with pytest.raises(ConfigError, match="usd_per_million_tokens"):
        price_of(settings(provider="cohere", model="embed-english-v3.0"))


@pytest.mark.parametrize("url", ["ftp://host/v1", "host/v1", "https://u:secret-word@host/v1"])
def test_an_address_that_is_none_is_refused_unquoted(url: str) -> None:
    with pytest.raises(ConfigError, match=r"encoder\.url") as caught:
        model(url=url)
    assert "secret-word" not in str(caught.value)


def test_the_identity_is_provider_model_and_dimension_and_not_the_address() -> None:
    found = model().fingerprint()
    assert EncoderFingerprint.from_json(found.to_json()) == found
    assert (found.model, found.pooling, found.normalized) == ("voyage:voyage-4", "hosted", True)
    assert found.is_hosted
    assert len(found.weights_sha256) == 64
    assert model(url="http://127.0.0.1:1/v1", api_key_variable="X").fingerprint() == found
    others = [
        model(model="voyage-4-lite"),
        model(dimension=256),
        model(provider="openai", model="voyage-4", dimension=1024),
    ]
    assert len({found.digest, *(m.fingerprint().digest for m in others)}) == 4
    hashes = {found.weights_sha256, *(m.fingerprint().weights_sha256 for m in others)}
    assert len(hashes) == 4


SERVED = ("voyage", "openai", "cohere")


def unit(text: str, dimension: int, purpose: str = "document") -> Any:
    vector = vector_of(text, dimension, purpose)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("purpose", ["document", "query"])
@pytest.mark.parametrize("provider", SERVED)
def test_each_provider_is_asked_in_its_own_form_and_answers_unit_vectors(
    provider: str, purpose: Purpose, new_client: NewClient
) -> None:
    server, client = new_client(provider)
    found = client.embed(["a river", "stone 漢 🙂"], purpose, 5.0)
    # OpenAI's models know one purpose.
    made_for = "document" if provider == "openai" else purpose
    expected = [unit(t, client.model.dimension, made_for) for t in ("a river", "stone 漢 🙂")]
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    assert found.tokens == 4 + 5
    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    assert server.texts == ["a river", "stone 漢 🙂"]


def test_the_fields_of_each_request(new_client: NewClient) -> None:
    """As the providers publish them (providers.py says where and when)."""
    expected: dict[str, dict[str, Any]] = {
        "voyage": {
            "model": "voyage-4", "input": ["x"], "input_type": "query", "truncation": True,
            "encoding_format": "base64", "output_dimension": 256,
        },
        "openai": {
            "model": "text-embedding-3-small", "input": ["x"], "encoding_format": "base64",
            "dimensions": 256,
        },
        "cohere": {
            "model": "embed-v4.0", "texts": ["x"], "input_type": "search_query",
            "embedding_types": ["float"], "truncate": "END", "output_dimension": 256,
        },
    }  # fmt: skip
    paths = {"voyage": "/v1/embeddings", "openai": "/v1/embeddings", "cohere": "/v2/embed"}
    for provider, body in expected.items():
        server, client = new_client(provider, dimension=256)
        assert client.embed(["x"], "query", 5.0).vectors.shape == (1, 256)
        assert server.asked[0].body == body
        assert server.asked[0].path == paths[provider]
        server, client = new_client(provider)
        client.embed(["x"], "document", 5.0)
        asked = set(server.asked[0].body)
        assert not {"dimensions", "output_dimension"} & asked, "a model's own length"


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        *((s, ProviderDownError, "") for s in (429, 503)),
        *((s, RequestRefusedError, "encoder") for s in (400, 413, 422)),
        (401, EncoderError, "API key"),
        (302, EncoderError, "redirects are not followed"),
        (418, EncoderError, ""),
    ],
)
def test_overload_may_pass_and_a_refusal_is_for_good_and_says_what_to_do(
    status: int, error: type[Exception], told: str, new_client: NewClient
) -> None:
    server, client = new_client()
    server.faults.append(Fault(status, b"{}"))
    with pytest.raises(error, match=f"voyage:voyage-4 .*HTTP {status}.*{told}") as caught:
        client.embed(["x"], "document", 5.0)
    assert type(caught.value) is error
    assert len(server.asked) == 1


def test_nobody_at_the_address_may_pass(new_client: NewClient) -> None:
    _, client = new_client(url="http://127.0.0.1:9/v1")
    with pytest.raises(ProviderDownError, match="could not be reached"):
        client.embed(["x"], "document", 5.0)


def test_an_answer_without_end_is_given_up(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = new_client()
    monkeypatch.setattr("noctuary.embed.hosted.MAX_ANSWER_BYTES", 10_000)
    server.faults.append(Fault(body=b" " * 20_000))
    with pytest.raises(EncoderError, match="larger"):
        client.embed(["x"], "document", 5.0)


def test_without_a_key_nothing_is_sent(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = new_client()
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(EncoderError, match=f"names {VARIABLE}, which is not set"):
        client.embed(["x"], "document", 5.0)
    monkeypatch.setenv(VARIABLE, "a\nkey")
    with pytest.raises(EncoderError, match="an HTTP header cannot") as caught:
        client.embed(["x"], "document", 5.0)
    assert "a\nkey" not in str(caught.value)
    assert server.asked == []


def test_the_key_and_the_text_are_in_no_error_no_log_and_no_repr(
    new_client: NewClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The loudest log that the libraries have, and a provider that quotes both."""
    caplog.set_level(logging.DEBUG)
    canary = "-".join(("the", "canary", "text"))  # not as it stands in this file's own traceback
    server, client = new_client()
    quoted = f"wrong key {KEY} for {canary}".encode()
    faults = (
        Fault(401, quoted),
        Fault(500, quoted),
        Fault(body=quoted),
        Fault(body=quoted, announced=900),
        Fault(302, quoted, {"Location": f"http://127.0.0.1:9/{KEY}"}),
    )
    told = [repr(client), repr(client.model)]
    for fault in faults:
        server.faults.append(fault)
        with pytest.raises(EncoderError) as caught:
            client.embed([canary], "document", 5.0)
        told += traceback.format_exception(caught.value)
    said = "\n".join([*told, *(record.getMessage() for record in caplog.records)])
    assert "Bearer" not in said
    assert canary not in said
    # The address of a redirect is a response header, which httpcore logs at DEBUG: a provider's own
    # words, not ours.
    assert KEY not in said.replace(f"http://127.0.0.1:9/{KEY}", "")


def test_importing_the_client_imports_no_http_library() -> None:
    from tests.support.imports import reachable_from

    found = reachable_from("noctuary.embed.hosted", eager_only=True)
    assert not {"httpx", "tenacity"} & found
    assert "httpx" in reachable_from("noctuary.embed.hosted")


VOYAGE = hosted_model(EncoderSettings("a-model", "voyage", dimension=3))
_number = st.floats(-1e6, 1e6, width=32)
_vectors = st.lists(
    st.lists(_number, min_size=3, max_size=3).filter(lambda v: max(map(abs, v)) > 1e-3),
    min_size=1,
    max_size=6,
)


def indexed(vectors: list[Any]) -> dict[str, Any]:
    rows = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return {"data": rows, "usage": {"total_tokens": 7}}


def read(answer: object, count: int = 2) -> Any:
    return read_batch(answer, VOYAGE, count)


@given(_vectors, st.randoms(use_true_random=False), st.booleans())
def test_any_order_and_either_encoding_give_the_unit_vectors_of_the_texts(
    vectors: list[list[float]], chance: Any, packed: bool
) -> None:
    """Against a naive reader."""
    answer = indexed(vectors)
    if packed:
        for row in answer["data"]:
            raw = np.asarray(row["embedding"], dtype="<f4").tobytes()
            row["embedding"] = base64.b64encode(raw).decode()
    chance.shuffle(answer["data"])
    found = read(answer, len(vectors))
    expected = [np.asarray(v) / np.sqrt(sum(x * x for x in v)) for v in vectors]
    assert found.vectors.dtype == np.float32
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1.0, atol=1e-6)
    assert found.tokens == 7


def _set(value: object, key: str = "embedding") -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        answer["data"][1][key] = value

    return change


UNREADABLE, NOT_UNIT = "did not answer 2 vectors of 3 numbers", "squared length"
BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "one-missing": (lambda answer: answer["data"].pop(), UNREADABLE),
    "one-twice": (_set(0, "index"), UNREADABLE),
    "one-beyond": (_set(2, "index"), UNREADABLE),
    "index-none": (_set(None, "index"), UNREADABLE),
    "too-short": (_set([1.0, 2.0]), UNREADABLE),
    "too-long": (_set([1.0] * 4), UNREADABLE),
    "no-list": (_set(None), UNREADABLE),
    "nested": (_set([[1.0], [2.0], [3.0]]), UNREADABLE),
    "words": (_set(["a", "b", "c"]), UNREADABLE),
    "a-null": (_set([None, 1.0, 2.0]), NOT_UNIT),
    "an-object": (_set({"a": 1}), UNREADABLE),
    "no-base64": (_set("@@@"), UNREADABLE),
    "half-a-number": (_set(base64.b64encode(b"12345").decode()), UNREADABLE),
    "NaN": (_set([float("nan"), 1.0, 2.0]), NOT_UNIT),
    "infinite": (_set([float("inf"), 1.0, 2.0]), NOT_UNIT),
    "too-large": (_set([1e200, 1.0, 2.0]), NOT_UNIT),
    "only-zeros": (_set([0.0, 0.0, 0.0]), NOT_UNIT),
}


@pytest.mark.parametrize("case", BAD)
def test_an_answer_that_is_not_one_usable_vector_per_text_is_refused(case: str) -> None:
    change, message = BAD[case]
    answer = indexed([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    change(answer)
    with pytest.raises(EncoderError, match=message):
        read(answer)
    forms: list[object] = [[], {}, {"data": {}}, {"data": [1]}, {"data": [{}]}, None, "x"]
    for form in forms:
        with pytest.raises(EncoderError, match=UNREADABLE):
            read(form)


@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": "9"}, {"total_tokens": -1}, 3])
def test_without_a_usable_count_of_tokens_the_vectors_are_good_all_the_same(usage: object) -> None:
    answer = {**indexed([[1.0, 0.0, 0.0]]), "usage": usage}
    found = read(answer, 1)
    assert found.tokens is None
    assert found.vectors.tolist() == [[1.0, 0.0, 0.0]]


MODEL = hosted_model(
    EncoderSettings("voyage-4", "voyage", "http://127.0.0.1:1/v1", "A_VARIABLE", 256)
)


def test_it_comes_back_and_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    write_description(tmp_path / "a", MODEL)
    assert read_description(tmp_path / "a") == MODEL
    write_description(tmp_path / "b", MODEL)
    one, other = ((tmp_path / name / HOSTED_FILE).read_bytes() for name in "ab")
    assert one == other


def test_it_holds_the_name_of_the_key_and_not_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_VARIABLE", "the-key-itself")
    write_description(tmp_path, MODEL)
    text = (tmp_path / HOSTED_FILE).read_text()
    assert "A_VARIABLE" in text
    assert "the-key-itself" not in text


def _model(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda told: told["model"].update(changes)


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another-format": lambda told: told.update(format_version=9),
    "another-fingerprint": lambda told: told["fingerprint"].update(dimension=3),
    "no-model": lambda told: told.pop("model"),
    "a-field-missing": lambda told: told["model"].pop("url"),
    "a-field-more": _model(more=1),
    "a-number-as-text": _model(dimension="256"),
    "true-as-a-number": _model(dimension=True),
    "an-unknown-provider": _model(provider="nobody"),
    "an-address-that-is-none": _model(url="file:///etc/passwd"),
    "another-dimension": _model(dimension=512),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_file_is_refused(case: str, tmp_path: Path) -> None:
    write_description(tmp_path, MODEL)
    path = tmp_path / HOSTED_FILE
    told = json.loads(path.read_text())
    CHANGES[case](told)
    path.write_text(json.dumps(told))
    with pytest.raises(EncoderError, match="Run the nightly job"):
        read_description(tmp_path)


@pytest.mark.parametrize("content", [None, "", "[]", "null", "{", "\x00"])
def test_a_file_that_is_none_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / HOSTED_FILE).write_text(content)
    with pytest.raises(EncoderError, match="Run the nightly job"):
        read_description(tmp_path)


CONTROL = 2


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", 0),
        (" \n\t", 0),
        ("river", 1),
        ("rivers", 2),
        ("12345", 3),
        ("a-b", 3),
        ("| x |", 3),
        ("встреча", 4),
        ("北京开会", 4),
        ("🙂🙂", 2),
        ("snake_case", 3),
    ],
)
def test_pieces(text: str, pieces: int) -> None:
    assert estimate_tokens([text], 32_000) == pieces + CONTROL
    assert estimate_tokens(["word " * 100, "b"], 32_000) == 102 + 3
    assert Spending(1.0, 2.0).usd(105) == pytest.approx(105 * 2.0 / 1_000_000)


@given(st.lists(st.text(max_size=50), max_size=20), st.integers(1, 60))
def test_estimates_add_up_and_are_never_negative(texts: list[str], limit: int) -> None:
    parts = [estimate_tokens([text], limit) for text in texts]
    assert estimate_tokens(texts, limit) == sum(parts)
    assert all(1 <= part <= limit for part in parts)


def test_above_the_budget_nothing_begins_and_the_numbers_are_told() -> None:
    spending = Spending(0.50, 0.10)
    with pytest.raises(BudgetError) as caught:
        spending.require_left(1_000, 6_000_000)
    said = str(caught.value)
    for part in ("1,000 texts", "6,000,000 tokens", "$0.600000", "$0.500000", "budget_usd"):
        assert part in said
    spending.require_left(1_000, 5_000_000)
    with pytest.raises(BudgetError):
        Spending(0.0, 0.0).require_left(1, 1)


def test_what_a_night_says_of_it() -> None:
    spending = Spending(5.0, 0.06, tokens=1_500_000, estimated_tokens=2_000_000, requests=2)
    assert spending.to_notes() == {
        "estimated_tokens": 2_000_000,
        "estimated_usd": 0.12,
        "paid_tokens": 1_500_000,
        "paid_usd": 0.09,
        "requests": 2,
    }


VOYAGE_MODEL = hosted_model(EncoderSettings("voyage-4", "voyage"))
OPENAI = hosted_model(EncoderSettings("text-embedding-3-small", "openai"))
COHERE_MODEL = hosted_model(EncoderSettings("embed-english-v3.0", "cohere"))


def size_bytes(text: str) -> int:
    return len(text.encode())


_anything = st.text(st.characters(), max_size=40)


@given(_anything, st.sampled_from([VOYAGE_MODEL, OPENAI, COHERE_MODEL]))
def test_a_sent_text_is_storable_and_visible_and_short_ones_are_as_they_were(
    text: str, model: HostedModel
) -> None:
    sent = sent_text(text, model)
    assert sent.encode("utf-8").decode("utf-8") == sent
    assert sent.strip()
    if text.strip() and not any("\ud800" <= c <= "\udfff" for c in text):
        assert sent == text
    assert sent_text(sent, model) == sent


@pytest.mark.parametrize(
    ("model", "limit"), [(VOYAGE_MODEL, 119_984), (OPENAI, 24_576), (COHERE_MODEL, 4_096)]
)
def test_a_text_is_cut_where_the_model_stops_reading(model: HostedModel, limit: int) -> None:
    assert len(sent_text("a" * 400_000, model)) == limit
    assert sent_text("a" * limit, model) == "a" * limit
    assert sent_text(" \n\t", model) == sent_text("", model) == BLANK
    assert sent_text("a\ud800b", model) == "a?b"
    exact, over = ["a" * 34, "b" * 34], ["a" * 34, "b" * 35]
    assert list(plan_requests(exact, 100)) == [[0, 1]]
    assert list(plan_requests(over, 100)) == [[0], [1]]
    assert list(plan_requests([], 100)) == []


@given(st.text(max_size=30), st.integers(0, 40))
def test_a_cut_is_the_longest_start_that_fits(text: str, limit: int) -> None:
    found = cut_bytes(text, limit)
    assert text.startswith(found)
    assert size_bytes(found) <= limit
    if found != text:
        assert size_bytes(text[: len(found) + 1]) > limit


@given(
    st.lists(st.text("aé漢", min_size=1, max_size=60), min_size=1, max_size=120),
    st.integers(200, 900),
)
def test_requests_hold_every_text_once_in_order_and_within_both_limits(
    texts: list[str], request_tokens: int
) -> None:
    plan = list(plan_requests(texts, request_tokens))
    assert [place for places in plan for place in places] == list(range(len(texts)))
    most = 96
    for places, following in zip(plan, [*plan[1:], None], strict=True):
        size = sum(size_bytes(texts[place]) + 16 for place in places)
        assert size <= request_tokens
        assert 1 <= len(places) <= most
        if following is not None:
            beyond = size + size_bytes(texts[following[0]]) + 16
            assert len(places) == most or beyond > request_tokens, (
                "no request is smaller than it must"
            )


TEXTS = [f"memory number {n} about river{n} and stone{n % 7}" for n in range(300)]


def opened(
    client: HostedClient, budget_usd: float = 5.0, price: float = 0.06
) -> tuple[HostedEncoder, list[str]]:
    said: list[str] = []
    return HostedEncoder(client, Spending(budget_usd, price), said.append), said


def embed(path: Path, encoder: HostedEncoder, texts: Sequence[str] = TEXTS) -> Embedded:
    store = ContentStore(path, vector_kind(encoder.fingerprint, encoder.model.provider))
    encode = encoder.iter_document_batches
    return embed_texts(texts, store, encoder.fingerprint, encode, batches_per_write=1)


def expected(texts: Sequence[str], dimension: int) -> Any:
    rows = np.array([vector_of(text, dimension) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("provider", ["voyage", "openai", "cohere"])
def test_every_text_gets_its_vector_in_as_few_requests_as_the_provider_allows(
    provider: str, new_client: NewClient, tmp_path: Path
) -> None:
    server, client = new_client(provider)
    encoder, said = opened(client, price=0.1)
    found = embed(tmp_path / "content", encoder)
    np.testing.assert_allclose(found.vectors, expected(TEXTS, client.model.dimension), atol=1e-6)
    require_unit_rows(found.vectors, range(300))
    assert len(server.asked) == 4
    assert server.texts == TEXTS
    paid = sum(len(text.split()) + 2 for text in TEXTS)
    assert encoder.spending.tokens == paid
    assert encoder.spending.to_notes()["paid_usd"] == round(paid * 0.1 / 1e6, 6)
    assert encoder.spending.estimated_tokens > paid
    assert len(said) == 1
    assert "300 vectors" in said[0]


def test_above_the_budget_nothing_is_sent(new_client: NewClient, tmp_path: Path) -> None:
    server, client = new_client()
    asked_before: list[int] = []
    told = HostedEncoder(
        client, Spending(5.0, 0.06), lambda _: asked_before.append(len(server.asked))
    )
    list(told.iter_document_batches(TEXTS[:3]))
    assert (asked_before, len(server.asked)) == ([0], 1), "the estimate is shown first"
    encoder, said = opened(client, budget_usd=0.0001)
    with pytest.raises(BudgetError, match=r"300 texts .* encoder\.budget_usd"):
        embed(tmp_path / "content", encoder)
    assert (len(server.asked), said) == (1, [])


def test_after_a_failure_only_the_rest_is_paid(new_client: NewClient, tmp_path: Path) -> None:
    server, client = new_client()
    server.die_after = 2
    encoder, _ = opened(client)
    with pytest.raises(ProviderDownError, match="HTTP 503"):
        embed(tmp_path / "content", encoder)
    assert server.texts[:192] == TEXTS[:192]
    server.die_after = None
    server.asked.clear()
    again, said = opened(client)
    found = embed(tmp_path / "content", again)
    assert (found.computed, found.reused) == (108, 192)
    assert server.texts == TEXTS[192:], "nothing is asked, or paid, twice"
    assert "108 vectors" in said[0]
    np.testing.assert_allclose(found.vectors, expected(TEXTS, 1024), atol=1e-6)


def test_passing_faults_cost_waiting_and_no_vectors(new_client: NewClient, tmp_path: Path) -> None:
    server, client = new_client()
    server.faults += [
        Fault(429, b"{}", {"Retry-After": "3"}),
        Fault(500, b"oops"),
        Fault(body=b'{"half', announced=100),
        Fault(body=b"<html>"),
    ]
    waits: list[float] = []
    patient = HostedClient(client.model, 6, waits.append)
    spending = Spending(5.0, 0.06)
    encoder = HostedEncoder(patient, spending, lambda _: None)
    found = embed(tmp_path / "content", encoder, TEXTS[:5])
    np.testing.assert_allclose(found.vectors, expected(TEXTS[:5], 1024), atol=1e-6)
    assert waits == [3.0, 2.0, 4.0, 8.0]
    assert spending.requests == 1
    patient.close()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(401, b"{}"), EncoderError),
        (Fault(400, b"{}"), RequestRefusedError),
        (Fault(spoil=lambda answer: answer["data"].pop()), EncoderError),
    ],
)
def test_what_no_retry_can_mend_ends_at_once(
    fault: Fault, error: type[Exception], new_client: NewClient, tmp_path: Path
) -> None:
    server, client = new_client()
    server.faults.append(fault)
    encoder, _ = opened(client)
    with pytest.raises(error):
        embed(tmp_path / "content", encoder, TEXTS[:5])
    assert len(server.asked) == 1


def test_a_text_that_is_too_long_is_cut_and_its_neighbours_are_as_ever(
    new_client: NewClient, tmp_path: Path
) -> None:
    """OpenAI refuses the whole request; dense text may have a token per byte."""
    server, client = new_client("openai")
    server.max_text_bytes = 10_000
    fits, too_long = "word " * 1_800, "w" * 20_000
    texts = ["river", fits, too_long, "stone"]
    encoder, _ = opened(client)
    found = embed(tmp_path / "content", encoder, texts)
    sent = ["river", fits, too_long[:8_192], "stone"]
    np.testing.assert_allclose(found.vectors, expected(sent, 1536), atol=1e-6)
    alone = embed(tmp_path / "other", encoder, [too_long])
    assert alone.vectors.tobytes() == found.vectors[2].tobytes()
    server.max_text_bytes = 2
    server.asked.clear()
    with pytest.raises(RequestRefusedError):
        list(encoder.iter_document_batches(["river"]))
    assert len(server.asked) == 1, "a refusal that is not about length stays one"


def test_a_provider_that_counts_more_than_estimated_ends_at_the_budget(
    new_client: NewClient, tmp_path: Path
) -> None:
    server, client = new_client()

    def inflate(answer: dict[str, dict[str, int]]) -> None:
        answer["usage"]["total_tokens"] = 90_000_000

    server.faults.append(Fault(spoil=inflate))
    encoder, _ = opened(client, budget_usd=5.0)
    with pytest.raises(BudgetError, match=r"\$5\.40 of the night's \$5\.00 are spent"):
        embed(tmp_path / "content", encoder)
    assert len(server.asked) == 1
    store = ContentStore(tmp_path / "content", f"vector:{encoder.fingerprint.digest}:voyage")
    kept = (store.find(list(map(text_key, TEXTS))) >= 0).sum()
    assert kept == 96, "what was paid for is kept"


@pytest.mark.parametrize("library", ["httpx", "tenacity"])
def test_without_the_extra_nothing_is_sent_and_the_extra_is_named(
    library: str, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = new_client()
    monkeypatch.setitem(sys.modules, library, None)
    encoder, _ = opened(client)
    with pytest.raises(EncoderError, match=r"install noctuary\[hosted\]"):
        list(encoder.iter_document_batches(TEXTS[:2]))
    assert server.asked == []


@pytest.mark.parametrize("provider", ["voyage", "openai", "cohere"])
def test_a_query_is_asked_as_a_query_once(provider: str, new_client: NewClient) -> None:
    server, client = new_client(provider)
    encoder = HostedQueryEncoder(client.model, client)
    found = encoder.encode_query("where is the key")
    purpose = "document" if provider == "openai" else "query"
    wanted = vector_of("where is the key", client.model.dimension, purpose)
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted), atol=1e-6)
    assert (found.shape, found.dtype) == ((client.model.dimension,), np.float32)
    assert not found.flags.writeable
    assert encoder.encode_query("where is the key") is found
    assert len(server.asked) == 1


def test_no_longer_than_the_recall_may_take(new_client: NewClient) -> None:
    server, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    encoder.encode_query("warm up")
    server.faults.append(Fault(hang=True))
    started = time.monotonic()
    with pytest.raises(ProviderDownError, match="within 140 ms"):
        encoder.encode_query("slow", within_ms=200)
    assert time.monotonic() - started < 1.5
    with pytest.raises(ProviderDownError, match=r"asked again in (29|30) s"):
        encoder.encode_query("another")
    assert server.texts == ["warm up", "slow"], "who was late is left alone"


@pytest.mark.parametrize("within_ms", [0.0, -5.0, float("nan")])
def test_without_time_nobody_is_asked(within_ms: float, new_client: NewClient) -> None:
    server, client = new_client()
    with pytest.raises(ProviderDownError, match="no time is left"):
        HostedQueryEncoder(client.model, client).encode_query("x", within_ms)
    assert server.asked == []


def test_a_late_answer_is_kept_and_ends_the_rest(new_client: NewClient) -> None:
    server, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    go_on = threading.Event()
    server.faults.append(Fault(spoil=lambda _: go_on.wait(10)))
    with pytest.raises(ProviderDownError):
        encoder.encode_query("late", within_ms=100)
    go_on.set()
    for _ in range(500):
        with suppress(ProviderDownError):
            assert encoder.encode_query("late", within_ms=0).shape == (1024,)
            break
        time.sleep(0.01)
    assert encoder.encode_query("another").shape == (1024,), "it is well again"


def test_after_a_failure_a_provider_is_left_alone_for_a_while(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    known = encoder.encode_query("known")
    server.asked.clear()
    server.faults += [Fault(500, b"{}"), Fault(401, b"{}")]
    with pytest.raises(ProviderDownError, match="HTTP 500"):
        encoder.encode_query("a")
    with pytest.raises(ProviderDownError, match=r"HTTP 500.*; it is asked again"):
        encoder.encode_query("b")
    assert encoder.encode_query("known") is known
    assert len(server.asked) == 1
    later = time.monotonic() + queries.REST_S + 1
    monkeypatch.setattr(queries.time, "monotonic", lambda: later)
    with pytest.raises(EncoderError, match="HTTP 401"):
        encoder.encode_query("b")
    with pytest.raises(ProviderDownError, match="HTTP 401"):
        encoder.encode_query("b")
    assert len(server.asked) == 2


def test_only_so_many_vectors_are_kept(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "CACHED_QUERIES", 2)
    server, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    for text in ("a", "b", "a", "c"):
        encoder.remember(text, np.ones(1024, dtype=np.float32))
    assert encoder.encode_query("a").tolist() == [1.0] * 1024
    assert server.asked == []
    encoder.encode_query("b")
    assert server.texts == ["b"], "the one that was not used longest goes"


def test_many_threads_get_the_vectors_of_their_own_queries(new_client: NewClient) -> None:
    _, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    found: dict[str, NDArray[np.float32]] = {}

    def ask(text: str) -> None:
        found[text] = encoder.encode_query(text)

    texts = [f"query number {n}" for n in range(8)]
    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text in texts:
        wanted = vector_of(text, 1024, "query")
        np.testing.assert_allclose(found[text], wanted / np.linalg.norm(wanted), atol=1e-6)
