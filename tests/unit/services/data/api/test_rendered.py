from services.data.api.rendered import OLD_S, OVERHEAD_BYTES, Rendered, RenderedVersions
from services.data.kinds import KINDS, SERIES
from services.data.store import StoredVersion

FORMATS = {each.suffix: each for each in KINDS["series"].formats}
JSON, CSV = FORMATS


def made(version: int, size: int = 100, now: float = 0.0) -> Rendered:
    return Rendered(StoredVersion(version, 0, 0, SERIES, b""), FORMATS[JSON], b"x" * size, now)


def test_memory_is_bounded_and_the_least_recently_used_goes() -> None:
    versions = RenderedVersions(3 * (100 + OVERHEAD_BYTES))
    kept = [versions.put("/a", made(version)) for version in (1, 2, 3)]
    assert versions.get("/a", 1, JSON, current=True, now=0) is kept[0]
    versions.put("/b", made(1, 150))
    assert [versions.get("/a", version, JSON, current=True, now=0) for version in (1, 2, 3)] == [kept[0], None, None]
    assert versions.bytes == 250 + 2 * OVERHEAD_BYTES
    versions.put("/b", made(1, 50))
    assert (len(versions), versions.bytes) == (2, 150 + 2 * OVERHEAD_BYTES)


def test_what_does_not_fit_is_not_kept() -> None:
    versions = RenderedVersions(1000)
    rendered = made(1, 2000)
    assert versions.put("/a", rendered) is rendered
    assert (len(versions), versions.bytes) == (0, 0)


def test_endpoints_versions_and_formats_are_kept_apart() -> None:
    versions = RenderedVersions()
    versions.put("/a", made(1))
    for endpoint, version, suffix in (("/b", 1, JSON), ("/a", 2, JSON), ("/a", 1, CSV)):
        assert versions.get(endpoint, version, suffix, current=True, now=0) is None


def test_old_versions_are_answered_for_a_while_and_the_current_one_for_ever() -> None:
    versions = RenderedVersions()
    rendered = versions.put("/a", made(1, now=10.0))
    assert versions.get("/a", 1, JSON, current=True, now=1e6) is rendered
    assert versions.get("/a", 1, JSON, current=False, now=10.0 + OLD_S - 0.1) is rendered
    assert versions.get("/a", 1, JSON, current=False, now=10.0 + OLD_S) is None
