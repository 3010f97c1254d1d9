"""A directory as a source: CSV and Parquet files that others write there."""

from services.data.sources.directory.source import DirectorySource

__all__ = ["DirectorySource"]
