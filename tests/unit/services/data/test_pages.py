from pathlib import Path

import pytest

from services.data.pages import UnusablePages, check_pages, find


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    pages = tmp_path / "pages"
    (pages / "shop").mkdir(parents=True)
    (pages / ".git").mkdir()
    (pages / "empty").mkdir()
    for name in ("index.html", "a b.js", "shop/index.html", "shop/cart.js", ".env", ".git/config"):
        (pages / name).write_text(name)
    (tmp_path / "secret").write_text("secret")
    return pages


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("/", "index.html"),
        ("/index.html", "index.html"),
        ("/a b.js", "a b.js"),
        ("/shop/", "shop/index.html"),
        ("/shop/cart.js", "shop/cart.js"),
    ],
)
def test_file_of_a_path(pages: Path, path: str, file: str) -> None:
    assert find(pages, path) == pages.resolve() / file


@pytest.mark.parametrize(
    "path",
    [
        *("/missing", "/shop", "/empty/", "/index.html/", "/index.html/x", "//shop/", "/shop//cart.js", "/\0"),
        *("/../secret", "/shop/../../secret", "/shop/..", "/.", "/./index.html"),
        *("/.env", "/.git/config", "/.git/", "/" + "x" * 300),
    ],
)
def test_anything_else_is_not_served(pages: Path, path: str) -> None:
    assert find(pages, path) is None


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_file_that_others_may_not_read_is_not_served(pages: Path, mode: int) -> None:
    (pages / "tls.key").write_text("key")
    (pages / "tls.key").chmod(mode)
    assert find(pages, "/tls.key") is None
    (pages / "tls.key").chmod(0o644)
    assert find(pages, "/tls.key") is not None


def test_links_are_followed_within_the_directory_alone(pages: Path) -> None:
    for name, target in {
        "inside": "index.html",
        "outside": "../secret",
        "hidden": ".env",
        "gone": "missing",
        "loop": "loop",
        "up": "..",
    }.items():
        (pages / name).symlink_to(target)
    assert find(pages, "/inside") == pages.resolve() / "index.html"
    for path in ("/outside", "/hidden", "/gone", "/loop", "/up/secret"):
        assert find(pages, path) is None, path


def test_directory_may_itself_be_a_link_and_may_disappear(pages: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(pages)
    assert find(link, "/") == pages.resolve() / "index.html"
    link.unlink()
    assert find(link, "/") is None


def test_directory_without_private_files_can_be_served(pages: Path, tmp_path: Path) -> None:
    check_pages(pages, [tmp_path / ".diem", tmp_path / "diem.toml", pages / ".diem"], "--pages")


@pytest.mark.parametrize(
    ("directory", "private", "expected"),
    [
        ("missing", [], "--pages missing: no such directory"),
        ("secret", [], "--pages secret: not a directory"),
        (
            "pages",
            ["pages/state"],
            "--pages pages: this would publish pages/state: choose a directory with pages alone",
        ),
        ("pages", ["pages"], "--pages pages: this would publish pages: "),
        ("pages/shop", ["pages"], "--pages pages/shop: this would publish pages: "),
        (".", ["diem.toml"], "--pages .: this would publish diem.toml: "),
    ],
)
def test_directory_with_secrets_is_refused(
    pages: Path, monkeypatch: pytest.MonkeyPatch, directory: str, private: list[str], expected: str
) -> None:
    monkeypatch.chdir(pages.parent)
    with pytest.raises(UnusablePages) as caught:
        check_pages(Path(directory), map(Path, private), "--pages")
    assert str(caught.value).startswith(expected)
