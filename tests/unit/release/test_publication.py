"""Publishing and exporting from Python: what the commands do, as functions of the library."""

import pytest

import margrave as mg
from margrave.errors import DataError, MeasurementError, ReleaseError, StoreError
from margrave.methods import NonNegative

DOMAIN = mg.Domain.fromdict({"age": 3, "sex": ["F", "M"]})
WORKLOAD = mg.Workload(DOMAIN, [("age", "sex"), ("sex",)])
NOISY = mg.Measurements.from_marginals(DOMAIN, [(("age", "sex"), [[10.4, 8], [2.2, -3], [5, 7]], 4.0)])


def test_a_publication_is_checked_made_and_whole(tmp_path):
    publication = mg.Publication(tmp_path / "out", method=NonNegative(weights="paper"), csv=True, title="Toys")
    publication.check(WORKLOAD)
    stages = []

    def begin(stage):
        stages.append(stage)
        return lambda done, total: None

    released = publication.publish(NOISY, WORKLOAD, progress=begin)
    assert stages == ["reconstructing", "writing"]
    assert mg.verify(tmp_path / "out") == ()
    assert mg.load(tmp_path / "out").method == released.method == publication.method
    assert "Toys" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    with pytest.raises(StoreError, match="already exists"):
        publication.check(WORKLOAD)


def test_a_publication_by_short_name_has_the_defaults_of_the_command_line():
    usual = mg.Publication("out")
    assert (usual.method, usual.overwrite, usual.csv, usual.report, usual.title) == (
        NonNegative(),
        False,
        False,
        True,
        None,
    )
    with pytest.raises(ReleaseError, match="no method 'best'"):
        mg.Publication("out", method="best")
    with pytest.raises(StoreError, match="cannot be a folder"):
        mg.Publication("a\0b")


def test_tables_written_by_export_are_read_again(tmp_path):
    released = mg.reconstruct(NOISY, WORKLOAD, method="mle")
    mg.export(released, tmp_path / "csv")
    files = sorted((tmp_path / "csv").iterdir())
    assert len(files) == 2
    # The files hold columns of errors, which no noisy table has.
    with pytest.raises(MeasurementError, match="which is not an attribute of the domain"):
        mg.Measurements.read_tables(files, DOMAIN, variance=4.0)
    plain = tmp_path / "sex.csv"
    plain.write_text("sex,count\nF,17.6\nM,12\n", encoding="utf-8")
    noisy = mg.Measurements.read_tables([plain], DOMAIN, variance=4.0)
    assert noisy.precision("sex") > 0


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("cvs", {}, r"no form 'cvs'; did you mean 'csv'\? \(there are csv, sdmx, registry\)"),
        ("sdmx", {"agency": "STAT"}, "sdmx needs agency"),
    ],
)
def test_an_export_that_cannot_be_made_is_refused(tmp_path, form, options, message):
    released = mg.reconstruct(NOISY, WORKLOAD, method="mle")
    with pytest.raises(ReleaseError, match=message):
        mg.export(released, tmp_path / "out", form=form, **options)
    (tmp_path / "there").touch()
    with pytest.raises(StoreError, match="there already exists; choose another name"):
        mg.export(released, tmp_path / "there", form="registry")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_every_form_is_written(tmp_path):
    released = mg.reconstruct(NOISY, WORKLOAD, method="mle")
    mg.export(released, tmp_path / "release.csv", form="sdmx", agency="STAT", dataflow="TOWN", period="2026")
    mg.export(released, tmp_path / "entry.yaml", form="registry", name="A town", curator="STAT")
    assert "TOWN" in (tmp_path / "release.csv").read_text(encoding="utf-8")
    assert "A town" in (tmp_path / "entry.yaml").read_text(encoding="utf-8")


def test_measurements_are_loaded_from_the_folder_of_a_release(tmp_path):
    mg.Publication(tmp_path / "out", method="mle", report=False).publish(NOISY, WORKLOAD)
    assert len(mg.Measurements.load(tmp_path / "out")) == len(NOISY)


def test_the_custodian_takes_any_table(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text("age,sex\n0,F\n1,M\n2,F\n", encoding="utf-8")
    assert mg.draft_domain(file).domain.attributes == ("age", "sex")
    found = mg.validate(file, mg.Domain([mg.Attribute("sex", labels=("F",))]))
    assert (found.fits, found.to_dict()["attributes"][0]["outside"]) == (False, 1)
    with pytest.raises(DataError, match=r"none\.csv"):
        mg.validate(tmp_path / "none.csv", DOMAIN)
