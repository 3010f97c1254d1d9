"""Signatures of deliveries: vectors of the specifications, and what is refused."""

import base64
import hashlib
import hmac

import pytest

from services.data.sources.webhook.signatures import BadSecret, Scheme, Unverified

STANDARD = Scheme("standard")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'
TIME = 1614265330
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(TIME),
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
"""The example of the Standard Webhooks specification, of Svix's documentation and of their libraries."""
ROTATED = (
    "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1,bm9ldHUjKzFob2VudXRob2VodWUzMjRvdWVvdW9ldQo= "
    "v2,MzJsNDk4MzI0K2VvdSMjMTEjQEBAQDEyMzMzMzEyMwo="
)
"""Its example of several signatures."""
OTHER = "whsec_" + base64.b64encode(b"another secret, of 24 bytes").decode()
GITHUB = Scheme("github")
GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB_HEADERS = {
    "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
}
"""The example of GitHub's documentation."""


def verify(scheme: Scheme, headers: dict[str, str], body: bytes, *secrets: str, now: float = TIME) -> str:
    """Return the id of a verified delivery."""
    signed = scheme.signed(headers, now)
    scheme.verify(signed, [scheme.key(secret) for secret in secrets], body)
    return signed.id


@pytest.mark.parametrize("signature", [HEADERS["webhook-signature"], ROTATED, " ".join(reversed(ROTATED.split()))])
def test_the_examples_of_standard_webhooks_are_verified(signature: str) -> None:
    headers = {**HEADERS, "webhook-signature": signature}
    assert verify(STANDARD, headers, BODY, SECRET) == HEADERS["webhook-id"]
    assert verify(STANDARD, headers, BODY, SECRET.removeprefix("whsec_")) == HEADERS["webhook-id"]
    of_svix = {name.replace("webhook", "svix"): text for name, text in headers.items()}
    assert verify(STANDARD, of_svix, BODY, SECRET) == HEADERS["webhook-id"]


def test_either_of_two_secrets_verifies_while_they_are_rotated() -> None:
    assert verify(STANDARD, HEADERS, BODY, OTHER, SECRET)
    with pytest.raises(Unverified, match="of another secret, or of another body"):
        verify(STANDARD, HEADERS, BODY, OTHER)


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJeK"},
        {"webhook-timestamp": str(TIME + 1)},
        {"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OA="},
        {"webhook-signature": "v1,"},
    ],
)
def test_nothing_that_is_signed_can_be_changed(changed: dict[str, str]) -> None:
    with pytest.raises(Unverified, match="of another secret"):
        verify(STANDARD, {**HEADERS, **changed}, BODY, SECRET)
    with pytest.raises(Unverified, match="of another secret"):
        verify(STANDARD, HEADERS, BODY + b" ", SECRET)


def test_a_delivery_is_verified_within_five_minutes_of_its_signed_time() -> None:
    for now in (TIME - 300, TIME + 300):
        assert verify(STANDARD, HEADERS, BODY, SECRET, now=now)
    for now in (TIME - 301, TIME + 301):
        with pytest.raises(Unverified, match="more than 300 s from the time here: a replay, or a wrong clock"):
            verify(STANDARD, HEADERS, BODY, SECRET, now=now)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"webhook-id": ""}, "it has no field webhook-id"),
        ({"webhook-signature": ""}, "it has no field webhook-signature"),
        ({"webhook-timestamp": "-1"}, "webhook-timestamp is no time"),
        ({"webhook-timestamp": "1614265330.5"}, "webhook-timestamp is no time"),
        ({"webhook-timestamp": "9" * 5000}, "webhook-timestamp is no time"),
        ({"webhook-timestamp": "٣"}, "webhook-timestamp is no time"),
        ({"webhook-signature": "v1a,g0hM9SsE"}, "webhook-signature has none of the version v1"),
        ({"webhook-signature": "v1,%%%"}, "the signature is not base64"),
    ],
)
def test_header_fields_that_are_no_signature_are_refused_before_the_body(headers: dict[str, str], reason: str) -> None:
    with pytest.raises(Unverified, match=reason):
        STANDARD.signed({**HEADERS, **headers}, TIME)


def test_the_example_of_github_is_verified() -> None:
    found = verify(GITHUB, GITHUB_HEADERS, b"Hello, World!", GITHUB_SECRET)
    assert found == "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    with pytest.raises(Unverified, match="of another secret, or of another body"):
        verify(GITHUB, GITHUB_HEADERS, b"Hello, World?", GITHUB_SECRET)
    with pytest.raises(Unverified, match="it has no field x-hub-signature-256"):
        GITHUB.signed({"x-hub-signature": "sha1=00"}, TIME)
    with pytest.raises(Unverified, match="the signature is not hex"):
        GITHUB.signed({"x-hub-signature-256": "sha256=xyz"}, TIME)


@pytest.mark.parametrize("encoding", ["hex", "base64"])
def test_others_sign_the_body_in_a_header_field_of_their_own(encoding: str) -> None:
    digest = hmac.new(b"a secret of the shop", BODY, hashlib.sha256).digest()
    text = digest.hex() if encoding == "hex" else base64.b64encode(digest).decode()
    scheme = Scheme("hmac", "x-shop-hmac", "hex" if encoding == "hex" else "base64", "x-shop-id")
    headers = {"x-shop-hmac": text, "x-shop-id": "7"}
    assert verify(scheme, headers, BODY, "a secret of the shop") == "7"
    with pytest.raises(Unverified):
        verify(scheme, headers, BODY, "a secret of the ship")


def test_the_least_is_a_secret_in_the_request() -> None:
    scheme = Scheme("bearer", id_header="x-id")
    headers = {"authorization": "Bearer a-secret-of-the-shop", "x-id": "7"}
    assert verify(scheme, headers, BODY, "a-secret-of-the-shop") == "7"
    with pytest.raises(Unverified, match="of another secret"):
        verify(scheme, headers, BODY, "a-secret-of-the-ship")
    for given in ("", "Basic YTpi", "Bearer "):
        with pytest.raises(Unverified, match="it has no field Authorization: Bearer"):
            scheme.signed({"authorization": given}, TIME)


@pytest.mark.parametrize(
    ("scheme", "secret", "reason"),
    [
        (STANDARD, "whsec_not base64", "is whsec_ and base64"),
        (STANDARD, "whsec_" + base64.b64encode(b"short").decode(), "has at least 16 bytes"),
        (GITHUB, "short", "has at least 16 bytes"),
    ],
)
def test_a_secret_that_proves_nothing_is_refused(scheme: Scheme, secret: str, reason: str) -> None:
    with pytest.raises(BadSecret, match=reason):
        scheme.key(secret)
