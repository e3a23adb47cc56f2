# %% [markdown]
# # A statistics office: from a raw extract to a publication
#
# The extract is the file `adult.data` as it is downloaded: no header, blanks after the commas, `?` for missing
# answers. Put it beside this script to use the real one (32,561 rows of the census of 1994); without it a stand-in of
# the same form is made up, so that the example runs everywhere.
#
# The office wants all tables of three attributes, and promises readers that sex by income and the age pyramid are
# exact to within 60 people.

# %%
import json
from pathlib import Path

import numpy as np

import margrave as mg
from margrave.planning import plan_for_targets

NAMES = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]


def make_up(path: Path, rows: int = 32_561) -> None:
    """Write a file in the form of adult.data: made-up people, with blanks and question marks."""
    draw = np.random.default_rng(1994)
    level = draw.choice(16, rows, p=np.array([1, 1, 1, 2, 2, 3, 4, 2, 32, 22, 4, 3, 16, 5, 1, 1]) / 100)
    schools = "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc Assoc-acdm "
    schools = (schools + "Bachelors Masters Prof-school Doctorate").split()
    age = np.clip(draw.gamma(7.0, 5.6, rows), 17, 90).astype(int)
    sex = draw.choice(["Female", "Male"], rows, p=[0.33, 0.67])
    married = draw.random(rows) < np.clip((age - 18) / 30, 0, 0.7)
    chance = np.clip(0.02 * level + 0.15 * married + 0.06 * (sex == "Male") + 0.003 * (age - 38), 0.01, 0.9)
    columns = [
        age,
        draw.choice(["Private", "Self-emp-not-inc", "Local-gov", "State-gov", "Federal-gov", "?"], rows),
        draw.integers(12_000, 1_500_000, rows),
        np.array(schools)[level],
        level + 1,
        np.where(married, "Married-civ-spouse", draw.choice(["Never-married", "Divorced", "Widowed"], rows)),
        draw.choice(["Sales", "Craft-repair", "Exec-managerial", "Adm-clerical", "Other-service", "?"], rows),
        np.where(married, np.where(sex == "Male", "Husband", "Wife"), draw.choice(["Own-child", "Unmarried"], rows)),
        draw.choice(
            ["White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other"],
            rows,
            p=[0.85, 0.1, 0.03, 0.01, 0.01],
        ),
        sex,
        np.zeros(rows, dtype=int),
        np.zeros(rows, dtype=int),
        np.clip(draw.normal(40, 11, rows), 1, 99).astype(int),
        draw.choice(["United-States", "Mexico", "?"], rows, p=[0.9, 0.08, 0.02]),
        np.where(draw.random(rows) < chance, ">50K", "<=50K"),
    ]
    with path.open("w", encoding="utf-8") as file:
        for row in zip(*columns, strict=True):
            print(*row, sep=", ", file=file)


raw = Path("adult.data")
if not raw.exists():
    raw = Path("made-up.data")
    make_up(raw)
# Endings other than .csv need to be told how fields are parted.
extract = mg.Data(raw, delimiter=",", trim=True, null="?", names=NAMES)

# %% [markdown]
# ## The domain
#
# A draft shows what is in the file. It is private: nobody publishes it, and no mechanism accepts it.

# %%
draft = mg.draft_domain(extract)
print(draft.domain)
print("determine each other:", draft.determined)

# %% [markdown]
# The office declares the domain by hand, from what is public about such a census: `fnlwgt` is a weight,
# `education-num` repeats education, gains and losses are left for another publication. Rare answers are `other`.

# %%
domain = mg.Domain(
    [
        mg.Attribute("age", cuts=(24, 34, 44, 54, 64), whole=True, description="age in completed years"),
        mg.Attribute("sex", labels=("Female", "Male")),
        mg.Attribute("race", labels=("White", "Black", "Asian-Pac-Islander"), other="other"),
        mg.Attribute("education", labels=("HS-grad", "Some-college", "Bachelors", "Masters"), other="other"),
        mg.Attribute("marital-status", labels=("Married-civ-spouse", "Never-married", "Divorced"), other="other"),
        mg.Attribute(
            "workclass", labels=("Private", "Self-emp-not-inc", "Local-gov"), other="other", missing="unknown"
        ),
        mg.Attribute("hours-per-week", cuts=(34, 40, 48), whole=True),
        mg.Attribute("income", labels=("<=50K", ">50K")),
    ],
    description="Census extract of 1994",
)
domain.write("domain.json")
fit = mg.validate(extract, domain)  # PRIVATE: for the custodian's eyes
assert fit.fits

# %% [markdown]
# ## The plan
#
# Headline tables first: their margins are promised before any data is opened. What is left of the budget goes to all
# the others.

# %%
workload = mg.Workload.all_kway(domain, 3)
budget = mg.Budget.approx(epsilon=1.0, delta=1e-9)
headlines = {("sex", "income"): 60.0, ("age", "sex"): 60.0}
plan = plan_for_targets(workload, budget, headlines, contributions=1)
for names, promised in headlines.items():
    assert plan.margin_of_error(*names) <= promised
print(plan.summary())

# %% [markdown]
# ## Measure, once, and publish
#
# The ledger holds the cap for the life of the extract. `Publication` checks first what could not be written later.

# %%
ledger = mg.Ledger("extract.ledger", cap=mg.Budget.approx(epsilon=3.0, delta=1e-9))
publication = mg.Publication("publication", csv=True, title="Census extract of 1994", errors=True)
publication.check(plan.workload)
noisy = mg.measure(plan, extract, ledger=ledger)
release = publication.publish(noisy, plan.workload)
assert mg.verify("publication") == ()

# %% [markdown]
# ## What readers get
#
# The folder with its report, SDMX for the data portal, and answers with intervals.

# %%
mg.export(
    release, "census-sdmx.csv", form="sdmx", agency="OFFICE", dataflow="CENSUS", period="1994", tables=list(headlines)
)
pyramid = release.table("age", "sex")
print(pyramid.to_arrow().to_pandas())
print(release.share("income = '>50K'", of="hours-per-week >= 41", by=("sex",)).to_arrow().to_pandas())
print(json.loads(Path("publication/privacy.json").read_text(encoding="utf-8"))["statement"])
