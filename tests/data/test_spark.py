"""Spark: one pass on its workers, names with dots, ids and texts of all types, and no value on the screen."""

import io
import itertools
import logging
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version

import pytest

from margrave.algebra.layout import Layout
from margrave.data.counting import executors
from margrave.data.engines.spark import SparkEngine, chosen_on_spark
from margrave.data.persons import Choice
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain
from margrave.errors import DataError

pytestmark = pytest.mark.engines

CODE = Domain([Attribute("x", size=2)])
SEX = Domain([Attribute("s", labels=("F", "M"), other="rest")])


def counted(data, domain=SEX, **options):
    layout = Layout.of(domain.shape, [(0,)])
    counts = open_source(data, domain, contributions=1, **options).count(layout)
    return counts[-domain.shape[0] :].tolist()


def test_texts_with_a_collation_are_coded_outside_of_spark(spark):
    for values in (["f", *"FFFFF"], [*"FFFFF", "f"]):
        plain = spark.createDataFrame([(value, 1) for value in values], "s string, x int")
        folded = plain.selectExpr("s collate UTF8_LCASE as s", "x")
        for counting in ("auto", "fetch", "push-down"):
            assert counted(Data(plain, counting=counting)) == [5, 0, 1]
            assert counted(Data(folded, counting=counting)) == [5, 0, 1]
        for counting in ("auto", "fetch", "push-down"):
            with pytest.raises(DataError, match=r"^column 's' has texts that the engine treats as equal"):
                counted(Data(folded, counting=counting), CODE, privacy_id="s")


def test_texts_of_a_fixed_length_are_coded_outside_of_spark(spark):
    """Spark notes beside a column of strings that it was declared as CHAR, and pads what it is compared with."""
    from pyspark.sql import functions as f

    plain = spark.createDataFrame([("F  ",), ("M  ",)], "s string")
    frame = plain.select(f.col("s").alias("s", metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}))
    for counting in ("auto", "fetch", "push-down"):
        assert counted(Data(frame, counting=counting)) == [0, 0, 2]
    with pytest.raises(DataError, match=r"^column 's' has texts that the engine treats as equal"):
        counted(Data(frame.selectExpr("*", "1 as x")), CODE, privacy_id="s")


@pytest.mark.parametrize("kind", ["interval day to second", "interval year to month", "array<int>"])
def test_types_of_ids_that_do_not_tell_persons_apart_are_refused(spark, kind):
    value = "array(1)" if kind == "array<int>" else "interval '1' month" if "month" in kind else "interval '1' day"
    for counting in ("fetch", "push-down"):
        with pytest.raises(DataError, match=r"^column 's' has ids of type (interval|array)"):
            counted(Data(spark.sql(f"select 1 as x, {value} as s"), counting=counting), CODE, privacy_id="s")


def test_types_of_ids_that_tell_persons_apart(spark):
    """Of three ids the first two are equal."""
    for kind, values in {
        "decimal(9, 2)": "1.0, 1.00, 1.01",
        "float": "-0.0d, 0.0d, 1.0d",
        "timestamp": "'2024-10-27T00:30:00Z', '2024-10-27T02:30:00+02:00', '2024-10-27T01:30:00Z'",
        "binary": "'a', 'a', 'A'",
        "date": "'2024-01-01', '2024-01-01', '2024-01-02'",
        "boolean": "true, true, false",
    }.items():
        frame = spark.sql(f"select cast(v as {kind}) as s, 1 as x from (select explode(array({values})) as v)")
        assert counted(Data(frame), CODE, privacy_id="s") == [0, 2], kind


def test_the_salt_is_in_no_plan(spark):
    frame = spark.sql("select '1' as margrave_person, '0' as margrave_row, 0 as margrave_code_0")
    salt = bytes(range(32))
    kept = chosen_on_spark(frame, ["margrave_code_0"], Choice("p", 1, salt))
    assert kept.count() == 1
    execution = kept._jdf.queryExecution()
    assert "margrave_salt" in execution.toString()
    plans = [getattr(execution, stage)() for stage in ("logical", "analyzed", "optimizedPlan", "executedPlan")]
    shown = [execution.toString(), *(plan.toJSON() for plan in plans)]
    for mode in ("extended", "codegen", "cost", "formatted"):
        shown.append(spark._jvm.PythonSQLUtils.explainString(execution, mode))
    assert not any(salt.hex() in text for text in shown)


def test_rows_are_chosen_without_python_on_the_workers(spark, monkeypatch):
    """A Python process that does not start, or not in time, cannot fail a choice that Spark makes by itself."""
    pytest.importorskip("pyspark.logger", reason="PySpark 3 takes rows only through Python")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nonexistent/python")
    rows = "select '1' as margrave_person, explode(array('0', '1', '2')) as margrave_row, 0 as margrave_code_0"
    assert chosen_on_spark(spark.sql(rows), ["margrave_code_0"], Choice("p", 2, bytes(32))).count() == 2


@pytest.mark.parametrize("counting", ["fetch", "push-down"])
def test_what_spark_says_of_a_failed_query_is_not_printed(spark, counting, capfd):
    logger_class = pytest.importorskip("pyspark.logger", reason="PySpark 3 has no loggers").PySparkLogger
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    loggers = [logger_class.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    frame = spark.createDataFrame([("1",), ("Katharina Geheim",)], "n string")
    failing = frame.selectExpr("'F' as s", "cast(n as int) as number").filter("number >= 0")
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with pytest.raises(DataError, match=r"^the PySpark frame could not be read and counted"):
            counted(Data(failing, counting=counting))
        shown = capfd.readouterr()
        assert "Katharina" not in shown.out + shown.err + written.getvalue()
        # Afterwards they speak again, as whoever set them up wants them to.
        for place, logger in enumerate(loggers):
            logger.error(f"heard {place}")
            assert f"heard {place}" in written.getvalue()
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


# --- one pass ----------------------------------------------------------------------------------------------------

PEOPLE = Domain(
    [
        Attribute("home.town", labels=tuple(f"town {k}" for k in range(30)), other="elsewhere", missing="unknown"),
        Attribute("age", cuts=(17, 64), whole=True),
        Attribute("Age", size=3, outside="drop"),
        Attribute("`odd`", labels=(True, False), missing="none"),
    ]
)


def people(spark, rows=400, kinds="`home.town` string, age int, Age bigint, ```odd``` boolean, `p.id` string"):
    made = [
        (f"town {k % 33}" if k % 7 else None, k % 90, k % 4, [True, False, None][k % 3], f"p{k // 5}")
        for k in range(rows)
    ]
    return spark.createDataFrame(made, kinds)


def tables(data, domain=PEOPLE, **options):
    layout = Layout.of(domain.shape, list(itertools.combinations(range(len(domain)), 2)))
    told = []
    counts = open_source(replace(data, notify=told.append), domain, contributions=2, **options).count(layout)
    return counts.tolist(), told


@pytest.mark.parametrize("privacy_id", [None, "p.id"])
def test_columns_with_a_dot_a_mark_or_another_case_are_columns(spark, privacy_id, monkeypatch):
    monkeypatch.setattr("margrave.data.persons.draw_salt", lambda: bytes(range(32)))
    frame = people(spark)
    expected, _ = tables(Data(frame.toPandas()), privacy_id=privacy_id)
    for counting in ("auto", "fetch", "push-down"):
        found, told = tables(Data(frame, counting=counting), privacy_id=privacy_id)
        assert found == expected, counting
        words = "the engine counts: its workers read the table once, for 6 tables of "
        assert (told[0].startswith(words) and len(told) == 1) if counting == "auto" else not told


def test_two_columns_of_one_name_are_refused(spark):
    frame = spark.createDataFrame([(0, 1)], "x int, y int").toDF("x", "x")
    for counting in ("fetch", "push-down"):
        with pytest.raises(DataError, match=r"^the frame has two columns 'x'; give each its own name"):
            counted(Data(frame, counting=counting), CODE)


@pytest.mark.parametrize("privacy_id", [None, "p.id"])
def test_workers_that_lack_margrave_count_by_group_by(spark, privacy_id, monkeypatch):
    """As if the workers had another version: what they would be sent is not for them."""
    monkeypatch.setattr("margrave.data.persons.draw_salt", lambda: bytes(range(32)))
    expected, _ = tables(Data(people(spark)), privacy_id=privacy_id)
    whole = executors.OnePass.count
    monkeypatch.setattr(executors.OnePass, "count", lambda self, version: whole(self, "0.0"))
    found, told = tables(Data(people(spark)), privacy_id=privacy_id)
    assert found == expected
    assert told[1].startswith("the workers of the cluster do not have margrave ")
    assert "the engine counts by GROUP BY instead, which is slower; install margrave" in told[1]


def test_errors_of_values_are_the_same_as_when_rows_are_fetched(spark):
    frame = people(spark)
    for domain in (
        Domain([Attribute("home.town", labels=tuple(f"town {k}" for k in range(30)), missing="unknown")]),
        Domain([Attribute("home.town", labels=tuple(f"town {k}" for k in range(40)))]),
        Domain([Attribute("age", labels=("a", "b"))]),
        Domain([Attribute("`odd`", labels=(True, False))]),
    ):
        said = []
        for counting in ("fetch", "push-down"):
            with pytest.raises(DataError) as caught:
                counted(Data(frame, counting=counting), domain)
            said.append(str(caught.value))
        assert said[0] == said[1]


def test_a_table_of_a_catalog_is_a_frame(spark, tmp_path):
    spark.sql("create database if not exists survey")
    people(spark).toDF("town", "age", "older", "odd", "p").write.mode("overwrite").parquet(str(tmp_path / "people"))
    spark.sql(f"create or replace temporary view people as select * from parquet.`{tmp_path / 'people'}`")
    spark.sql("drop table if exists survey.people")
    spark.sql(f"create table survey.people using parquet location '{tmp_path / 'people'}'")
    domain = Domain([Attribute("age", cuts=(17, 64), whole=True)])
    expected = counted(Data(spark.table("people")), domain)
    assert counted(Data(spark.table("spark_catalog.survey.people")), domain) == expected
    with pytest.raises(DataError, match=r"^a SparkSession is not a table by itself; give one of its frames"):
        Data(spark, table="spark_catalog.survey.people")
    spark.sql("drop table survey.people")


def test_spark_connect_counts_the_same():
    """In a process of its own: a session of Spark Connect and one of this process do not go together."""
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    code = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from margrave.algebra.layout import Layout
from margrave.data.source import Data, open_source
from margrave.domain import Attribute, Domain
spark = SparkSession.builder.remote("local[1]").getOrCreate()
frame = spark.createDataFrame([(f"town {k % 3}", k % 2, k // 4) for k in range(100)], "`a.b` string, x int, p int")
domain = Domain([Attribute("a.b", labels=("town 0", "town 1"), other="rest"), Attribute("x", size=2)])
layout = Layout.of(domain.shape, [(0, 1)])
for privacy_id in (None, "p"):
    found = [
        open_source(Data(frame, counting=way), domain, contributions=9, privacy_id=privacy_id).count(layout).tolist()
        for way in ("fetch", "push-down")
    ]
    assert found[0] == found[1] and found[0][0] == 100, found
print("equal", type(frame).__module__)
spark.stop()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "equal pyspark.sql.connect" in done.stdout, done.stderr[-2000:]


def test_the_table_is_read_once_however_many_tables_are_counted(spark):
    """As many jobs of Spark for 364 tables as for one, and no more rows for the driver than there are cells."""
    sizes = (2, 3, 5, 2, 4, 3, 2, 3, 2, 4, 3, 2, 5, 2)
    domain = Domain.fromdict({f"a{k}": size for k, size in enumerate(sizes)})
    frame = spark.range(5000).selectExpr(*(f"id % {size} as a{k}" for k, size in enumerate(sizes)))
    jobs = []
    for tables in ([(0, 1, 2)], list(itertools.combinations(range(14), 3))):
        layout = Layout.of(domain.shape, tables)
        group = f"margrave {len(tables)}"
        spark.sparkContext.setJobGroup(group, group)
        counts = open_source(Data(frame), domain, contributions=1).count(layout)
        jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)))
        assert counts[0] == 5000
        with ExitStack() as stack:
            passing = executors.OnePass(SparkEngine(frame, stack), domain, layout)
            assert passing._summed(version("margrave")).count() <= layout.cells - layout.inner_cells
    assert jobs[0] == jobs[1] > 0
