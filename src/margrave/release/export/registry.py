"""A draft entry for the Differential Privacy Deployments Registry, filled with all that margrave knows.

The registry (github.com/opendp/deployments-registry-data) takes one YAML file for each deployment, in the form that its
``schemas/deployments-schema.yaml`` prescribes. What only the publisher knows is marked ``TODO``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from margrave.errors import StoreError
from margrave.escaping import visible
from margrave.release import facts
from margrave.release.facts import float_above, kept_rows, query_statement
from margrave.release.store.tables import safe_word

if TYPE_CHECKING:
    from margrave.measurements.provenance import Provenance
    from margrave.release.release import Release

Entry = dict[str, Any]

_HEAD = """# Draft of an entry for the Differential Privacy Deployments Registry, written by margrave.
# Fill in what is marked TODO, check the rest, save it as a .yaml file in lower case, and propose it at
# https://github.com/opendp/deployments-registry-data (its README says how).
"""
_PLAIN_DATE = "1900-01-01"


def registry_entry(release: Release, *, name: str | None = None, curator: str | None = None) -> str:
    """Return a draft entry for the Differential Privacy Deployments Registry, as the text of a YAML file.

    Parameters
    ----------
    release
        What was published. One whose noise came from a seed or from a foreign sampler is refused.
    name
        What the publication is called.
    curator
        Who publishes it.
    """
    provenance = release.provenance
    if provenance is not None and not provenance.private:
        raise StoreError(
            "the noise of this release came from a seed, or from a sampler that margrave does not know",
            remedy="only a release with private noise belongs in the registry",
        )
    title = name or "TODO: the name of the data product"
    entry: Entry = {
        "url_slug": safe_word(title if name else "todo").replace("_", "-").lower() or "todo",
        "deployment": {
            "basic": _basic(release, title, curator),
            "dp_variant": _variant(release),
            "privacy_loss": _privacy_loss(provenance),
            "deployment_model": _model(),
            "implementation": _implementation(release),
            "administrative": _administrative(),
        },
    }
    return _HEAD + "\n".join(_lines(entry)) + "\n"


def _basic(release: Release, title: str, curator: str | None) -> Entry:
    workload = release.workload
    tables = "one cross-tabulation" if len(workload) == 1 else f"{len(workload):,} cross-tabulations"
    return {
        "name": title,
        "data_curators": [
            {
                "data_curator_name": curator or "TODO: the name of the organisation that publishes the data product",
                "data_curator_type": _Choice("Government", "Government, Industry or Nonprofit"),
            }
        ],
        "description": f"{tables} with {workload.cells:,} cells in all, over {', '.join(workload.domain.attributes)}. "
        f"{workload.domain.description}".strip(),
        "intended_use": "TODO: what the data product is for",
        "data_product_type": "Summary statistics",
        "data_product_region": "TODO: the region that the data describe",
        "data_product_sector": _Choice(
            "Government", "Technology, Healthcare, Education, Government, Energy or Finance"
        ),
        "publication_date": _Choice(_PLAIN_DATE, "the date of publication, YYYY-MM-DD"),
    }


def _variant(release: Release) -> Entry:
    domain = release.workload.domain
    columns = "; ".join(f"{member.name} ({member.size:,} categories)" for member in domain)
    name = "Zero-concentrated DP" if release.provenance else _Choice("Custom", _asked_of("the variant"))
    return {
        "variant_name": name,
        "data_domain": f"All tables of people with the declared columns {columns}; any number of rows.",
        "unprotected_quantities": "None by margrave: every number is made from noisy measurements. Public by "
        "declaration: the columns with their categories, the tables asked for, and the size of the noise. "
        "TODO: confirm that none of these was read from the private table, and name what else was published.",
    }


def _privacy_loss(provenance: Provenance | None) -> Entry:
    if provenance is None:
        asked = f"TODO: {_asked_of('the guarantee')}; the noisy numbers came from elsewhere"
        return {"privacy_unit": asked, "privacy_unit_details": asked, "privacy_parameters_details": asked}
    return {
        "privacy_unit": "Person-level",
        "privacy_unit_details": f"Neighbouring tables: {provenance.neighbours}, {facts.person(provenance)}. TODO: say "
        "who counts as a person.",
        "number_of_privacy_units": _Choice(
            None, "roughly how many people the data are about; the exact number is private"
        ),
        "privacy_parameters": {
            "epsilon": provenance.epsilon,
            "delta": provenance.delta,
            "rho": float_above(provenance.rho),
        },
        "privacy_parameters_details": f"The guarantee is ρ-zCDP with ρ = {provenance.rho} exactly; (ε, δ) follows from "
        "it by the conversion of Canonne, Kamath and Steinke (arXiv:2004.00010, Prop. 12), rounded towards privacy. "
        "TODO: name other releases from the same data; their ρ add up.",
    }


def _model() -> Entry:
    return {
        "model_name": "Central",
        "model_name_details": "The publisher holds the table, adds the noise, and publishes only what was made from "
        "the noisy measurements.",
        "trust_assumptions": "TODO: who may see the private table and the machine that computes on it, and why they "
        "are trusted",
        "actors": "TODO: the publisher, the people in the data, the users of the tables, and possible attackers",
        "release_type": _Choice("One release", "One release or Many releases"),
        "release_type_details": "TODO: whether more will be published from the same data, and what caps the budget",
        "data_source_type": _Choice("Static", "Static or Dynamic"),
        "access_type": "Non-interactive",
        "access_type_details": "The tables are published as they are; the private table cannot be queried.",
    }


def _implementation(release: Release) -> Entry:
    provenance = release.provenance
    asked = "" if provenance is None else query_statement(provenance)
    tuning = (
        "TODO: how the columns and their categories were chosen, and whether anything was tuned on the private table"
    )
    said = [asked, kept_rows(release.workload.domain, provenance), tuning]
    return {
        "preprocessing_and_hyperparameter_tuning": " ".join(text for text in said if text),
        "mechanisms": _mechanisms(provenance),
        "composition": _composition(provenance),
        "post_processing": f"{release.method.words.registry} Everything is made from the noisy measurements alone, and "
        "costs no privacy.",
        "justification": "TODO: why this budget, these tables and these bounds were chosen",
        "utility": _utility(release),
        "additional_information": "Made with margrave, after Mullins et al., Efficient and Private Marginal "
        "Reconstruction with Local Non-Negativity (arXiv:2410.01091). TODO: a link to the publication",
    }


def _utility(release: Release) -> str:
    if facts.is_adaptive(release.provenance):
        return f"{facts.NO_INTERVALS} TODO: how useful the tables are for what they are meant for"
    coverage = facts.coverage(release.workload.domain, release.provenance)
    return (
        "Each cell of the unbiased estimate has a standard error, which follows from the noise in closed form, and, "
        f"where the noise is Gaussian, a 95 % interval, which {coverage}. "
        "Both are published with the tables."
    )


def _mechanisms(provenance: Provenance | None) -> str:
    if provenance is None:
        return f"TODO: {_asked_of('the mechanism')}; margrave only reconstructed the tables"
    return (
        f"{provenance.mechanism} (margrave {provenance.version}). The noise is {facts.noise(provenance)}. "
        "Whole numbers leave no room for floating-point attacks. TODO: how the private table and the machine are "
        "protected."
    )


def _composition(provenance: Provenance | None) -> str:
    if provenance is None:
        return f"TODO: {_asked_of('the accounting')}"
    steps = "; ".join(f"{step.purpose}: ρ = {float(step.rho):.6g}" for step in provenance.steps[:20])
    more = f"; and {len(provenance.steps) - 20:,} more steps" if len(provenance.steps) > 20 else ""
    return f"ρ of zCDP adds up, as exact fractions. {steps}{more}"


def _administrative() -> Entry:
    return {
        "evidence_sources": {
            "release": {
                "evidence_source_type": _Choice(
                    "Formal publication by the deploying organization", "see the schema for the other types"
                ),
                "misc": {"title": "TODO: the title of the publication", "url": "TODO: where it is"},
            }
        },
        "status": "Draft",
        "registry_authors": ["TODO: who writes this entry"],
        "tier": 3,
    }


def _asked_of(what: str) -> str:
    return f"ask whoever made the noisy numbers for {what}"


class _Choice:
    """A value for the publisher to decide, written with a comment; None if the whole line is one until then."""

    def __init__(self, value: str | None, comment: str) -> None:
        self.value = value
        self.comment = comment


def _lines(value: object, indent: int = 0) -> list[str]:
    """Return the lines of a mapping or a list as YAML; texts are in double quotes, so that no content can break out."""
    pad = "  " * indent
    lines: list[str] = []
    pairs = value.items() if isinstance(value, dict) else ((None, item) for item in _items(value))
    for key, item in pairs:
        head = f"{pad}-" if key is None else f"{pad}{key}:"
        if isinstance(item, dict | list):
            lines += [head, *_lines(item, indent + 1)]
        elif isinstance(item, _Choice):
            shown = f"# {key}:" if item.value is None else f"{key}: {_scalar(item.value)} #"
            lines.append(f"{pad}{shown} TODO: {item.comment}")
        else:
            lines.append(f"{head} {_scalar(item)}")
    return lines


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _scalar(value: object) -> str:
    r"""Return a text or a number as YAML: JSON is YAML but for characters that YAML does not print.

    Those, and others that act without being seen, are escaped; ``\x``, ``\u`` and ``\U`` mean the same in YAML.
    """
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "." not in text.partition("e")[0]:
        text = text.replace("e", ".0e")  # YAML takes 1e-09 for a text
    return visible(text)
