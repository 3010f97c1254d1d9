"""The check of identifiers finds what it is for."""

from tests.vocabulary import defined_in_python, defined_in_typescript, words

PYTHON = """
class OwnerTold:
    def tell(self, said_by): self._asked = 1
    STANDBY_LOOK_S = 2.0
"""
TYPESCRIPT = """
  readonly #ledger = new Ledger();
  #tell(): void {
  get isSettled(): boolean {
"""


def test_a_replaced_word_is_found_as_a_part_of_a_name() -> None:
    assert {name for _, name in defined_in_python(PYTHON) if words(name)} == {
        "OwnerTold",
        "tell",
        "said_by",
        "_asked",
        "STANDBY_LOOK_S",
    }
    assert {name for _, name in defined_in_typescript(TYPESCRIPT) if words(name)} == {"ledger", "tell", "isSettled"}


def test_words_within_words_are_not_replaced_ones() -> None:
    assert not words("essay") | words("lookup") | words("is_installed")
