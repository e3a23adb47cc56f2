"""Made-up data sets in a folder, as the experiments read them."""

import pytest
from generated import SIZES, rows_of, write_dataset


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with the data sets "town" and "village"."""
    made = tmp_path_factory.mktemp("data")
    write_dataset(made, "town", SIZES, rows_of())
    write_dataset(made, "village", SIZES, rows_of(seed=8)[:300])
    return made
