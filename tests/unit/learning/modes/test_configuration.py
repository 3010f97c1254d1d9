"""Commands and shares of configurations."""

from learning.modes.configuration import Configuration, Size, up_arguments


def test_commands_name_only_what_is_not_the_default() -> None:
    def arguments(configuration: Configuration, size: Size, brokers: int = 1) -> str:
        return " ".join(up_arguments(configuration, size, brokers))

    assert arguments(Configuration.SINGLE, Size()) == "up --mode single"
    assert arguments(Configuration.X, Size(3), brokers=3) == "up --mode x --servers 3 --brokers 3"
    assert arguments(Configuration.XZ, Size(2, 4)) == "up --mode xz --servers 2 --clones 4"
    assert arguments(Configuration.Z_CLIENT, Size(16)) == "up --mode z-client --servers 16 --partitions 30"
    assert arguments(Configuration.X_BROADCAST, Size(4), brokers=3) == "up --mode x-broadcast --servers 4"
