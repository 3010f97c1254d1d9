"""The partition map in Kafka: read and followed, written by whoever plans, begun by the publisher."""

from diem.kafka.map_reader import MapReader, MapRecord, read_map
from diem.kafka.map_writer import begin_map, change_map, ensure_map, write_map

__all__ = ["MapReader", "MapRecord", "begin_map", "change_map", "ensure_map", "read_map", "write_map"]
