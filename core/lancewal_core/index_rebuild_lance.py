"""Building a secondary index of a Lance data set anew, with the parameters that it has.

Guarantee: the new index has the name, the kind and all parameters that change what queries find or how an index is laid out,
as far as Lance tells them; ``ValueError`` names an index of which it does not.  How it is trained (samples, iterations) is
Lance's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance.indices import IndexConfig

_PLAIN = {"BTree": "BTREE", "Bitmap": "BITMAP", "LabelList": "LABEL_LIST", "NGram": "NGRAM", "RTree": "RTREE"}
"""Kinds without parameters that change what they find, by Lance's names of them."""
_BY_STATISTICS = {
    "ZoneMap": ("zonemap", ("rows_per_zone",)),
    "BloomFilter": ("bloomfilter", ("number_of_items", "probability")),
}
_TOKENS = frozenset(
    (
        "lance_tokenizer", "base_tokenizer", "language", "with_position", "max_token_length", "lower_case", "stem",
        "remove_stop_words", "custom_stop_words", "ascii_folding", "min_ngram_length", "max_ngram_length", "prefix_only",
        "block_size", "split_identifiers", "split_on_numerics", "preserve_original", "index_operators",
    )
)  # fmt: skip
_DEFAULTS: Mapping[str, object] = {"document_granularity": "row"}
"""Of a full text index: what is known, but not passed on."""


def rebuild(dataset: Any, name: str) -> None:
    """Build the index anew from all rows of the version that ``dataset`` has open, in place of all segments."""
    (found,) = (i for i in dataset.describe_indices() if i.name == name)
    if len(found.field_names) != 1:
        raise _not_known(name, found.index_type)
    (column,) = found.field_names
    kind, details = found.index_type, dict(found.details)
    if kind in _PLAIN and not details:
        dataset.create_scalar_index(column, _PLAIN[kind], name=name, replace=True)
    elif kind in _BY_STATISTICS and not details:
        config, wanted = _BY_STATISTICS[kind]
        stored = _statistics(dataset, name)
        parameters = {key: stored[key] for key in wanted}
        dataset.create_scalar_index(column, IndexConfig(config, parameters), name=name, replace=True)
    elif kind == "Inverted":
        more = {key: value for key, value in details.items() if key not in _TOKENS and value != _DEFAULTS.get(key)}
        if more:
            raise _not_known(name, kind, str(sorted(more)))
        tokens = {key: value for key, value in details.items() if key in _TOKENS and value is not None}
        dataset.create_scalar_index(column, "INVERTED", name=name, replace=True, **tokens)
    elif kind.startswith("IVF_"):
        partitions = int(_statistics(dataset, name)["num_partitions"])
        more = _vector_parameters(name, kind, details)
        dataset.create_index(column, kind, name=name, replace=True, num_partitions=partitions, **more)
    else:
        raise _not_known(name, kind)


def _vector_parameters(name: str, kind: str, details: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"metric": str(details["metric_type"]).lower()}
    compression: Mapping[str, Any] = details.get("compression", {})
    match compression.get("type", "flat"):
        case "pq":
            found |= {"num_sub_vectors": compression["num_sub_vectors"], "num_bits": compression["num_bits"]}
        case "rq" if compression.get("rotation_type", "fast") == "fast":
            found["num_bits"] = compression["num_bits"]
        case "sq" if compression.get("num_bits", 8) == 8:
            pass
        case "flat":
            pass
        case _:
            raise _not_known(name, kind, str(compression))
    if "hnsw" in details:
        graph = details["hnsw"]
        found |= {
            "m": graph["max_connections"],
            "ef_construction": graph["construction_ef"],
            "max_level": graph["max_level"],
        }
    return found


def _statistics(dataset: Any, name: str) -> Mapping[str, Any]:
    """Of its first segment: the others have the same parameters."""
    found: Mapping[str, Any] = dataset.stats.index_stats(name)["indices"][0]
    return found


def _not_known(name: str, kind: str, what: str = "") -> ValueError:
    of = f" ({what})" if what else ""
    return ValueError(
        f"lancewal does not know all parameters of index {name}, of kind {kind}{of}: build it anew yourself, with "
        "replace=True and its own parameters; until then queries by it may find rows by old values"
    )
