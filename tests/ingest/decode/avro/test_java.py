"""Apache's own Avro agrees: on what is a schema, and on datums, which it writes in the forms that fastavro never does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from py4j.protocol import Py4JJavaError

from tests.ingest.decode.avro.cases import Drawn, record
from tests.ingest.decode.avro.test_paths_agree import made, tables
from tests.ingest.decode.avro.test_schema import BAD, GOOD
from tests.ingest.decode.avro.test_schema import record as nested
from tests.ingest.decode.framed.outcomes import decoded, outcomes
from tests.support.fuzzing import fuzz
from tests.support.java import SPARK_JARS, java

pytestmark = pytest.mark.spark
BLOCK_BYTES = 64
"""Bytes of a block, the fewest that Java allows: nearly every list has several."""


@pytest.fixture(scope="module")
def avro() -> Iterator[Any]:
    """Java's package, in a process of its own, with the jars that PySpark brings."""
    with java(SPARK_JARS) as started:
        yield started


def parses(avro: Any, schema: Any) -> bool:
    try:
        avro.org.apache.avro.Schema.Parser().parse(json.dumps(schema))
    except Py4JJavaError:
        return False
    return True


@pytest.mark.parametrize("schema", [schema for schema, _ in GOOD], ids=str)
def test_java_takes_the_schemas_that_are_taken(avro: Any, schema: Any) -> None:
    assert parses(avro, schema)


STRICTER = (
    {"type": "record", "name": ".r", "fields": []},
    {"type": "record", "name": "r", "fields": [], "namespace": 3},
    # A name before its definition.
    nested("s", nested(name="s")),
)
"""Schemas that the specification refuses, and Java 1.12 takes."""


@pytest.mark.parametrize("schema", [schema for schema, _ in BAD if schema not in STRICTER], ids=str)
def test_java_refuses_the_schemas_that_are_refused(avro: Any, schema: Any) -> None:
    assert not parses(avro, schema)


@pytest.mark.parametrize("schema", STRICTER, ids=str)
def test_java_takes_what_the_specification_refuses(avro: Any, schema: Any) -> None:
    """A change of Java's is seen here."""
    assert schema in [one for one, _ in BAD]
    assert parses(avro, schema)


def rewritten(avro: Any, schema: Any, datums: Sequence[bytes], *, blocks: bool) -> list[bytes]:
    """The datums as Java reads them, and writes them again."""
    parsed = avro.org.apache.avro.Schema.Parser().parse(json.dumps(schema))
    reader = avro.org.apache.avro.generic.GenericDatumReader(parsed)
    writer = avro.org.apache.avro.generic.GenericDatumWriter(parsed)
    encoders = avro.org.apache.avro.io.EncoderFactory()
    encoders.configureBlockSize(BLOCK_BYTES)
    found = []
    for datum in datums:
        decoder = avro.org.apache.avro.io.DecoderFactory.get().binaryDecoder(datum, None)
        out = avro.java.io.ByteArrayOutputStream()
        encoder = encoders.blockingBinaryEncoder(out, None) if blocks else encoders.binaryEncoder(out, None)
        writer.write(reader.read(None, decoder), encoder)
        encoder.flush()
        assert decoder.isEnd()
        found.append(bytes(out.toByteArray()))
    return found


@fuzz(40)
@given(table=tables())
def test_datums_of_java_are_the_same_rows(avro: Any, table: tuple[list[Drawn], list[list[tuple[Any, Any]]]]) -> None:
    of, datums, _ = made(*table)
    names = [f"c{number}" for number in range(len(table[0]))]
    schema = record([("id", "long"), *((name, one.avro) for name, one in zip(names, table[0], strict=True))])
    plain = rewritten(avro, schema, datums, blocks=False)
    # Java gives the keys of a map an order of its own.
    assert "map" in json.dumps(schema) or plain == datums
    assert outcomes(decoded(of, rewritten(avro, schema, plain, blocks=True))) == outcomes(decoded(of, plain))
