"""Spark: texts that it takes for equal are fetched, and what it says of failed queries stays off the screen."""

import io
import logging

import pytest

from margrave.algebra.layout import Layout
from margrave.data.engines.databases import chosen_on_spark
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


def test_texts_with_a_collation_are_fetched(spark):
    for values in (["f", *"FFFFF"], [*"FFFFF", "f"]):
        plain = spark.createDataFrame([(value, 1) for value in values], "s string, x int")
        folded = plain.selectExpr("s collate UTF8_LCASE as s", "x")
        for counting in ("auto", "fetch", "push-down"):
            assert counted(Data(plain, counting=counting)) == [5, 0, 1]
        assert counted(Data(folded)) == [5, 0, 1]
        with pytest.raises(DataError, match=r"^the engine is not known to compare the texts of column 's' byte for"):
            counted(Data(folded, counting="push-down"))
        for counting in ("auto", "fetch", "push-down"):
            with pytest.raises(DataError, match=r"^column 's' has texts that the engine takes for equal"):
                counted(Data(folded, counting=counting), CODE, privacy_id="s")


def test_texts_of_a_fixed_length_are_fetched(spark):
    """Spark notes beside a column of strings that it was declared as CHAR, and pads what it is compared with."""
    from pyspark.sql import functions as f

    plain = spark.createDataFrame([("F  ",), ("M  ",)], "s string")
    frame = plain.select(f.col("s").alias("s", metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}))
    assert counted(Data(frame)) == counted(Data(frame, counting="fetch")) == [0, 0, 2]
    with pytest.raises(DataError, match=r"^the engine is not known to compare the texts of column 's' byte for"):
        counted(Data(frame, counting="push-down"))
    with pytest.raises(DataError, match=r"^column 's' has texts that the engine takes for equal"):
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
    assert "margrave_salt" in kept._jdf.queryExecution().toString()
    assert salt.hex() not in kept._jdf.queryExecution().toString()


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
