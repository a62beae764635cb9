"""Rebuilding secondary indexes of a Lance data set, with the parameters by which they were built, as far as Lance
reports these.

Lance reports an index's kind and parameters in two places: the index's description, and its statistics.  Neither place
has all parameters.  For example, the description of a full text index leaves out a user's own stop words, which the
statistics have.  Parameters of training (samples, iterations) are not stored; a rebuilt index uses Lance's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from lance import LanceDataset, LanceOperation, Transaction
from lance.bitmap import Bitmap
from lance.dataset import Index
from lance.indices import IndexConfig
from lance.query import DocumentGranularity

from lancewal_core.errors import ObjectCorrupt, VersionGone
from lancewal_core.names.paths import VERSIONS
from lancewal_core.table.lance.errors import reading
from lancewal_core.table.protocol import ROW_ADDRESS

SYSTEM_INDEX = "__lance_"
_PLAIN = {"BTree": "BTREE", "Bitmap": "BITMAP", "LabelList": "LABEL_LIST", "NGram": "NGRAM"}
_CONFIGURED = {
    "ZoneMap": ("ZONEMAP", ("rows_per_zone",)),
    "BloomFilter": ("BLOOMFILTER", ("number_of_items", "probability")),
}
_NOTHING_TOLD = "none of its segments covers a row, so Lance does not report its parameters"
TOKENIZER = frozenset(
    (
        "base_tokenizer", "language", "max_token_length", "lower_case", "stem", "remove_stop_words", "custom_stop_words",
        "ascii_folding", "min_ngram_length", "max_ngram_length", "prefix_only", "split_identifiers", "split_on_numerics",
        "preserve_original", "index_operators",
    )
)  # fmt: skip
"""Parameters of a full text index by which a text becomes tokens."""
_NO_PARTITION = "null partition id"
_LARGEST = float(np.finfo(np.float32).max)
_TEXT = TOKENIZER | {"with_position", "block_size"}


@dataclass(frozen=True, slots=True)
class IndexBuild:
    """Parameters for rebuilding an index."""

    name: str
    kind: str
    """Kind of the index as pylance takes it, e.g. ``BTREE``; Lance's own name for a kind that pylance cannot build."""
    path: tuple[str, ...]
    """Name of the indexed column, followed by the names of struct members if a member is indexed.  Empty if unknown."""
    parameters: Mapping[str, Any]
    """Keyword arguments for pylance, beside column, kind and name."""
    segments: int
    """Number of the index's segments."""
    not_reported: str = ""
    """Parameters that Lance does not report and that will have Lance's defaults, as text; empty if there are none."""
    unknown: str = ""
    """Reason why lancewal cannot rebuild the index; empty if it can."""
    damaged: bool = False
    """Whether the index's files cannot be read; ``unknown`` then says so."""

    @property
    def sql(self) -> str:
        """Column or member as an SQL expression."""
        return ".".join(f"`{name}`" for name in self.path)

    @property
    def column(self) -> str:
        """Column or member in the form that pylance takes."""
        return self.sql if len(self.path) > 1 else self.path[0]

    @property
    def call(self) -> str:
        """Python call that rebuilds the index, as text for people."""
        method = "create_index" if self.kind.startswith("IVF_") else "create_scalar_index"
        more = "".join(f", {key}={value!r}" for key, value in self.parameters.items())
        return f"{method}({self.column!r}, {self.kind!r}, name={self.name!r}, replace=True{more})"


def index_builds(dataset: Any) -> tuple[IndexBuild, ...]:
    """Return the builds of all indexes that users have made, sorted by name."""
    found = [d for d in dataset.describe_indices() if not d.name.startswith(SYSTEM_INDEX)]
    return tuple(_build_of(dataset, description) for description in sorted(found, key=lambda d: d.name))


def index_build(dataset: Any, name: str) -> IndexBuild | None:
    """Return the build of the index of this name; None if there is no such index."""
    found = [d for d in dataset.describe_indices() if d.name == name]
    return _build_of(dataset, found[0]) if found else None


def build_again(dataset: Any, build: IndexBuild) -> None:
    """Rebuild an index over all rows of the version ``dataset``.  One commit replaces all segments of the index by
    one."""
    column = build.column
    if build.kind.startswith("IVF_"):
        dataset.create_index(column, build.kind, name=build.name, replace=True, **build.parameters)
    elif build.kind in {kind for kind, _ in _CONFIGURED.values()}:
        config = IndexConfig(build.kind.lower(), dict(build.parameters))
        dataset.create_scalar_index(column, config, name=build.name, replace=True)
    else:
        dataset.create_scalar_index(column, build.kind, name=build.name, replace=True, **build.parameters)


def known_build(dataset: Any, name: str) -> IndexBuild:
    """Return the build of an index.  Raise ``ValueError`` if the index is gone, or if lancewal cannot rebuild it."""
    build = index_build(dataset, name)
    if build is None or build.unknown:
        kind, why = ("", "it is gone") if build is None else (f", of kind {build.kind}", build.unknown)
        raise ValueError(
            f"lancewal does not know all parameters of index {name!r}{kind}: {why}. Build it again yourself, with "
            "replace=True and its own parameters. Until then queries by it may find rows by old values"
        )
    return build


def meets_far_rows(error: BaseException) -> bool:
    """Return whether Lance could not build an index because of a vector that is too long (``far_rows``)."""
    return _NO_PARTITION in str(error).lower()


def far_rows(dataset: Any, build: IndexBuild, fragment_ids: Sequence[int] | None = None) -> npt.NDArray[np.uint64]:
    """Return the ascending addresses of *far rows*: rows that a vector index with metric ``l2`` cannot hold.  The
    squared length of their vectors exceeds float32.

    Lance leaves out vectors that are null, infinite or NaN.  One vector that is too long makes Lance give up the whole
    build (Lance 14).  ``fragment_ids``: only these fragments are searched; None: all.
    """
    found = [np.zeros(0, np.uint64)]
    with reading(f"looking for vectors that index {build.name} cannot take"):
        fragments = None if fragment_ids is None else [dataset.get_fragment(i) for i in fragment_ids]
        scanner = dataset.scanner(
            columns={"v": build.sql},
            filter=f"{build.sql} is not null",
            fragments=fragments,
            with_row_address=True,
        )
        for batch in scanner.to_batches():
            column = batch.column("v")
            vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1).astype(np.float64)
            with np.errstate(all="ignore"):
                far = np.isfinite(vectors).all(axis=1) & (np.vecdot(vectors, vectors) > _LARGEST)
            found.append(batch.column(ROW_ADDRESS).to_numpy()[far])
    return np.sort(np.concatenate(found))


def build_without(
    dataset: Any, build: IndexBuild, left_out: npt.NDArray[np.uint64], drop: Callable[[str], object]
) -> LanceOperation.CreateIndex:
    """Rebuild an index over all rows but ``left_out``.  Return the operation whose commit replaces all segments of the
    index.

    ``left_out``: row addresses.  The new index says that it covers the fragments of these rows, so that the next
    extension does not read the rows again.  ``drop`` deletes the object of the data set with a given key.

    Lance always builds an index over all live rows of a version.  So the rows are hidden in a detached version, which
    no reader finds, and which is deleted afterwards.
    """
    changed, gone = [], []
    for fragment in np.unique(left_out >> np.uint64(32)).tolist():
        rows = left_out[left_out >> np.uint64(32) == fragment] & np.uint64(0xFFFFFFFF)
        metadata = dataset.get_fragment(fragment).delete_rows(rows.tolist())
        if metadata is None:
            gone.append(fragment)
        else:
            changed.append(metadata)
    hiding = LanceOperation.Update(
        removed_fragment_ids=gone, updated_fragments=changed, new_fragments=[], fields_modified=[]
    )
    hidden = LanceDataset.commit(dataset, Transaction(dataset.version, hiding), detached=True)
    try:
        made = hidden.create_index_uncommitted(
            build.column,
            build.kind,
            name=build.name,
            replace=True,
            fragment_ids=[fragment.fragment_id for fragment in hidden.get_fragments()],
            **build.parameters,
        )
    finally:
        drop(f"{VERSIONS}d{hidden.version}.manifest")
    made.dataset_version = dataset.version
    made.fragment_ids = Bitmap(fragment.fragment_id for fragment in dataset.get_fragments())
    (described,) = (d for d in dataset.describe_indices() if d.name == build.name)
    old = [
        Index(s.uuid, build.name, described.fields, s.dataset_version_at_last_update, Bitmap(s.fragment_ids), 0)
        for s in described.segments
    ]
    return LanceOperation.CreateIndex([made], old)


def _build_of(dataset: Any, description: Any) -> IndexBuild:
    found, details = description.index_type, dict(description.details or {})
    paths = [path for path in (_path(dataset.lance_schema.fields(), i) for i in description.fields) if path]
    kind = "INVERTED" if found == "Inverted" else found
    parameters: dict[str, Any] = {}
    unknown = ""
    not_reported = "its page size: Lance's default is taken" if found == "BTree" else ""
    plain = found in _PLAIN and not details
    told = {} if plain else _statistics(dataset, description.name)
    if told is None:
        kind = _CONFIGURED.get(found, (kind, ()))[0]
    elif len(paths) != 1:
        unknown = f"it is over {len(paths)} columns"
    elif plain:
        kind = _PLAIN[found]
    elif found in _CONFIGURED and not details:
        kind, names = _CONFIGURED[found]
        parameters = {name: told[name] for name in names if name in told}
        not_reported = "" if parameters else f"its {' and '.join(names)}: Lance's defaults are taken"
    elif found == "Inverted":
        parameters, unknown = _text(told.get("params", {}), details)
    elif found.startswith("IVF_"):
        parameters, unknown = _vector(told, details)
    else:
        unknown = f"lancewal does not know the parameters {sorted(details)} of this kind"
    if told is None:
        unknown = "a file of it is damaged or gone, so Lance cannot read the statistics that have its parameters"
    path = paths[0] if paths else ()
    return IndexBuild(
        description.name,
        kind,
        path,
        parameters,
        len(description.segments),
        not_reported,
        unknown,
        told is None,
    )


def _text(told: Mapping[str, Any], details: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    if not told:
        return {}, _NOTHING_TOLD
    more = {key for key, value in told.items() if key not in _TEXT and (key, value) != ("lance_tokenizer", "text")}
    if more:
        return {}, f"lancewal does not know the parameters {sorted(more)} of its tokenizer"
    parameters: dict[str, Any] = {name: value for name, value in told.items() if name in _TEXT}
    granularity = details.get("document_granularity", DocumentGranularity.ROW.value)
    if granularity != DocumentGranularity.ROW.value:
        parameters["document_granularity"] = DocumentGranularity(granularity)
    return parameters, ""


def _vector(told: Mapping[str, Any], details: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    if "num_partitions" not in told:
        return {}, _NOTHING_TOLD
    parameters: dict[str, Any] = {
        "metric": str(details["metric_type"]).lower(),
        "num_partitions": int(told["num_partitions"]),
    }
    compression: Mapping[str, Any] = details.get("compression", {})
    match compression.get("type", "flat"):
        case "pq":
            parameters |= {key: compression[key] for key in ("num_sub_vectors", "num_bits")}
        case "rq" if compression.get("rotation_type") == "fast":
            parameters["num_bits"] = compression["num_bits"]
        case "sq" if compression.get("num_bits") == 8:
            pass
        case "flat":
            pass
        case _:
            return parameters, f"lancewal does not know its compression {dict(compression)}"
    if "hnsw" in details:
        graph = details["hnsw"]
        parameters |= {
            "m": graph["max_connections"],
            "ef_construction": graph["construction_ef"],
            "max_level": graph["max_level"],
        }
    return parameters, ""


def _statistics(dataset: Any, name: str) -> Mapping[str, Any] | None:
    """Return Lance's statistics of the index segment that has most partitions; if none has partitions, of the first
    one.

    Return None if files of the index cannot be read.  Return an empty mapping if no segment covers a row, since Lance
    reports nothing about such segments.  A small segment may have fewer partitions than the index was made with.
    """
    try:
        with reading(f"reading index {name}", names_nothing=True):
            segments: list[Mapping[str, Any]] = dataset.stats.index_stats(name)["indices"]
    except (ObjectCorrupt, VersionGone):
        return None
    return max((told for told in segments if told), key=lambda told: told.get("num_partitions", 0), default={})


def _path(fields: Sequence[Any], wanted: int) -> tuple[str, ...]:
    """Return the path of names to the field with the id ``wanted``, outermost first; empty if no field has this id."""
    for field in fields:
        if field.id() == wanted:
            return (field.name(),)
        below = _path(field.children(), wanted)
        if below:
            return (field.name(), *below)
    return ()
