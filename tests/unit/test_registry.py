"""The draft entry has the form of the registry, all that margrave knows, and a TODO for all that it does not."""

import datetime
import re
from dataclasses import replace

import numpy as np
import pytest
from releases import adaptive, foreign, made, measured

from margrave.domain import Attribute, Domain
from margrave.errors import StoreError
from margrave.escaping import visible
from margrave.measurements import Measurements
from margrave.methods import names
from margrave.privacy.entropy import InsecureSeededSource
from margrave.privacy.noise import gaussian_sampler
from margrave.release.export.registry import registry_entry
from margrave.release.publication import reconstruct
from margrave.workload import Workload

yaml = pytest.importorskip("yaml", reason="the entry is read back with PyYAML, which only the tests need")

NOISY = measured()
# The keys that schemas/deployments-schema.yaml of the registry allows, and what it requires of texts to choose from.
FORM = {
    "basic": "name data_curators description intended_use data_product_type data_product_region data_product_sector "
    "publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details number_of_privacy_units privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details trust_assumptions actors release_type release_type_details "
    "data_source_type data_source_type_details access_type access_type_details",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification "
    "utility additional_information",
    "administrative": "evidence_sources status registry_authors tier",
}
CHOICES = {
    "data_product_type": {"Summary statistics"},
    "data_product_sector": {"Technology", "Healthcare", "Education", "Government", "Energy", "Finance"},
    "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
    "model_name": {"Local", "Central", "Shuffle", "Federated", "Varies"},
    "release_type": {"One release", "Many releases"},
    "data_source_type": {"Static", "Dynamic"},
    "access_type": {"Interactive", "Non-interactive"},
    "status": {"Draft"},
}


def entry_of(release, **options):
    return yaml.safe_load(registry_entry(release, **options))


@pytest.mark.parametrize("method", names())
@pytest.mark.parametrize("source", [lambda: NOISY, foreign, adaptive], ids=["own", "foreign", "mwem"])
def test_the_entry_has_the_form_of_the_registry(method, source):
    entry = entry_of(made(source(), method))
    assert set(entry) == {"url_slug", "deployment"}
    assert set(entry["deployment"]) == set(FORM)
    for part, keys in FORM.items():
        found = entry["deployment"][part]
        assert set(found) <= set(keys.split())
        for key, value in found.items():
            assert key not in CHOICES or value in CHOICES[key]
            assert isinstance(value, str | list | dict) or (key == "tier" and value == 3)
    curator = entry["deployment"]["basic"]["data_curators"][0]
    assert set(curator) == {"data_curator_name", "data_curator_type"}
    datetime.date.fromisoformat(entry["deployment"]["basic"]["publication_date"])


def test_what_margrave_knows_is_filled_in():
    entry = entry_of(
        made(NOISY, "lnn"),
        name="Survey of “Nobody”: 2026",
        curator="Statistics: Nowhere # yes",
    )
    record, deployment = NOISY.provenance, entry["deployment"]
    assert entry["url_slug"] == "survey-of-nobody-2026"
    assert deployment["basic"]["name"] == "Survey of “Nobody”: 2026"
    assert deployment["basic"]["data_curators"][0]["data_curator_name"] == "Statistics: Nowhere # yes"
    assert deployment["basic"]["description"].startswith("4 cross-tabulations with 22 cells in all, over age, sex, ")
    assert deployment["dp_variant"]["variant_name"] == "Zero-concentrated DP"
    loss = deployment["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] == record.epsilon
    assert loss["privacy_parameters"]["delta"] == record.delta
    assert loss["privacy_parameters"]["rho"] >= record.rho
    assert f"ρ = {record.rho} exactly" in loss["privacy_parameters_details"]
    assert "at most 2 rows in the table (declared by the publisher, not checked)" in loss["privacy_unit_details"]
    assert deployment["implementation"]["mechanisms"].startswith("residual planner (margrave ")
    assert deployment["implementation"]["post_processing"].startswith("GReM-LNN")


def test_rows_that_were_left_out_are_named():
    release = made(NOISY.with_provenance(replace(NOISY.provenance, contributions_bounded="enforced")))
    entry = entry_of(release)["deployment"]
    assert (
        "with at most 2 rows counted in the table (enforced before counting)"
        in entry["privacy_loss"]["privacy_unit_details"]
    )
    steps = entry["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert steps.startswith("Counts and intervals are of the rows that were kept: at most 2 rows of each person. The")
    assert "TODO: how the columns and their categories were chosen" in steps


def test_a_query_is_named_and_the_unit_is_of_its_result():
    asked = replace(NOISY.provenance, contributions_bounded="enforced", queried=True)
    entry = entry_of(made(NOISY.with_provenance(asked)))["deployment"]
    assert "with at most 2 rows counted in the query's result" in entry["privacy_loss"]["privacy_unit_details"]
    steps = entry["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert steps.startswith("The table is the result of a query, whose text is not published. Rows of a person are")
    stated = entry_of(made(NOISY.with_provenance(replace(asked, contributions_bounded="declared"))))["deployment"]
    assert "at most 2 rows in the query's result (declared" in stated["privacy_loss"]["privacy_unit_details"]


def test_what_margrave_does_not_know_is_left_to_the_publisher():
    text = registry_entry(made(NOISY))
    for key in ("intended_use", "data_product_region", "trust_assumptions", "actors", "justification", "url", "title"):
        assert re.search(rf'^ *{key}: "TODO: ', text, flags=re.MULTILINE), key
    assert re.search(r"^ *# number_of_privacy_units: TODO: ", text, flags=re.MULTILINE)
    assert re.search(r'^ *publication_date: "1900-01-01" # TODO: ', text, flags=re.MULTILINE)


def test_numbers_from_elsewhere_state_no_guarantee():
    entry = entry_of(made(foreign()))["deployment"]
    assert "privacy_parameters" not in entry["privacy_loss"]
    assert entry["privacy_loss"]["privacy_unit"].startswith("TODO: ask whoever made the noisy numbers")
    assert entry["implementation"]["mechanisms"].startswith("TODO: ask whoever made the noisy numbers")
    assert entry["dp_variant"]["variant_name"] == "Custom"


def test_noise_from_a_seed_is_refused():
    release = made(measured(sampler=gaussian_sampler(source=InsecureSeededSource(3))))
    with pytest.raises(StoreError, match="came from a seed, or from a sampler that margrave does not know"):
        registry_entry(release)


def test_many_steps_are_cut_short():
    release = made(NOISY)
    record = release.provenance
    object.__setattr__(record, "steps", record.steps * 25)
    try:
        assert "; and 5 more steps" in entry_of(release)["deployment"]["implementation"]["composition"]
    finally:
        object.__setattr__(record, "steps", record.steps[:1])


@pytest.mark.parametrize(
    "text", ['"', "\\", "a: b # c", "\n- x", "\x85\u2028\ufeff\x7f", "\u202e\U000e0041", "{}[]*&!|>%@`", "null", "😀"]
)
def test_no_text_can_break_out_of_its_place(text):
    domain = Domain([Attribute(text, size=2)], text)
    noisy = Measurements.from_marginals(domain, [((text,), np.ones(2), 1.0)])
    release = reconstruct(noisy, Workload(domain, [(text,)]), method="mle")
    assert visible(registry_entry(release, name=text), keep="\n") == registry_entry(release, name=text)
    entry = entry_of(release, name=text, curator=text)["deployment"]
    assert entry["basic"]["name"] == text
    assert text.strip() in entry["basic"]["description"]
    assert f"{text} (2 categories)" in entry["dp_variant"]["data_domain"]
