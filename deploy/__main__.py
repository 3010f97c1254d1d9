"""`python -m deploy` is `diem`; the supervisor starts every process this way."""

from deploy.cli import app

app()
