import pytest

from deploy.page_address import data_view

PAGE = "http://localhost:8080/"


@pytest.mark.parametrize(
    ("endpoint", "query"),
    [
        ("", "?view=data"),
        ("/my/series", "?view=data&endpoint=/my/series"),
        ("/a+b=c;d", "?view=data&endpoint=/a%2Bb%3Dc%3Bd"),
    ],
)
def test_link_names_the_endpoint_of_the_view(endpoint: str, query: str) -> None:
    assert data_view(PAGE, endpoint) == PAGE + query
