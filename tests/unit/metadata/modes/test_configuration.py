"""Commands and shares of configurations."""

from metadata.modes.configuration import Configuration, Size, up_command


def test_commands_name_only_what_is_not_the_default() -> None:
    assert up_command(Configuration.SINGLE, Size()) == "diem up --mode single"
    assert up_command(Configuration.X, Size(3), brokers=3) == "diem up --mode x --servers 3 --brokers 3"
    assert up_command(Configuration.Z_PASSTHROUGH, Size(2)) == "diem up --mode z-proxy --servers 2 --proxy passthrough"
    assert up_command(Configuration.XZ, Size(2, 4)) == "diem up --mode xz --servers 2 --clones 4"
    assert up_command(Configuration.Z_CLIENT, Size(16)) == "diem up --mode z-client --servers 16 --partitions 16"
    assert up_command(Configuration.X_BROADCAST, Size(4), brokers=3) == "diem up --mode x-broadcast --servers 4"
