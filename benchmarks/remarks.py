"""Texts of the benchmark page next to its figures: how peers are measured, which aims are missed, and why."""

from __future__ import annotations

INTRODUCTION = """\
# Benchmarks

`python3 dev.py bench` measures and writes this page. The module of each section under `benchmarks/` says what it does and
under which conditions. Speed is given as a ratio within one run, against a peer or a *floor*: a bare program that does only
the necessary part. `A over B` is A divided by B. Absolute figures are for orientation: machines of one kind differ. The
machine of `reads*` and `search*` takes 1.5 times as long as that of the other sections for Lance's own scans and queries. So
compare ratios, not times.

Merges are timed up to three points. *Flush*: the files of a generation are written. *Commit*: the table version has its
rows. *End of the round*: the key index has them too. In `distance`, a *round* is a number of requests that are under way at
the same time.

`changes-large` and `merge-large` take 12 GiB of disk, `search-large` 8 GiB of memory and 12 minutes. They run only if they
are named: `python3 dev.py bench search-large`. `reads` takes 10 GiB. `.venv/bin/python -m benchmarks.reads` prints its
figures for a tenth of the rows in a minute, and keeps nothing. So does `.venv/bin/python -m benchmarks.columns 300000`, in
three minutes, and `.venv/bin/python -m benchmarks.cuts small` in three.

In `cuts`, two processes of ingest have ten tables each, and one flusher has all twenty: forty processes, as in production, do
not fit on two cores. Freshness is that of three of the tables. PostgreSQL runs on the same machine."""


PEERS = """
## peers

`python3 dev.py bench-peers` compares lancewal with Delta, Iceberg, Hudi, lance-spark and LakeSoul. It fetches each into an
environment of its own in the cache folder (about 3 GB); no other command fetches a peer. lancewal and the peer get the same
rows and run in turns. `--rows 100000 --rounds 3 --round-rows 5000` makes a short run. `--peers delta,lakesoul` and
`--measures ab` run a part. `--output FILE` leaves this page unchanged. The command names each peer that cannot be fetched or
started, and then exits with code 3.

* a: upserts through Kafka. lancewal is timed from the first `produce` until plain Lance reads the merged rows: broker, JSON,
  WAL, flushes and merges. A peer is timed only for the upsert of a cached DataFrame. *In a stream*: all rounds are produced
  without waiting between them, and compared with the same rounds of the peer.
* b: upserts given as Arrow. lancewal flushes, merges and updates the key index, without a WAL. LakeSoul uses its native
  upsert. LakeSoul does not look for the rows that are replaced: its reads merge by key, and reads of a Lance table need not.
  *pylance, rows known*: Lance's own calls write the same rows, deletion files and commit, given the rows that are replaced.
* c: reads after these rounds, by lancewal's reader and by plain Lance, before and after `lancewal compact --all`.
* d: a [named snapshot](how-to/keep-a-snapshot.md) after the rounds, read by lance-spark. It runs in turns with lance-spark's
  own table after the same rounds of its MERGE."""


MISSED = """
## Aims that are missed, and what else is slow

Each name in parentheses is the section of this page that has the figures.

* **Records with headers, against the same without** (headers). Kafka's client makes a tuple, a text and bytes of each header
  when a record is asked for its headers, and has no cheaper way to say their names. Any consumer in Python takes this time; a
  process that does nothing else measures it. So 0.9 of the speed without headers is out of reach: the best ratio has the
  figures. lancewal reads the headers of a poll into one column in one further pass, and takes about a fifth more time than
  the best ingest. The figures are from a busy machine, so only those of CPU time are shown.
* **Changes of a merge in 50 M rows, against in 5 M** (changes-large). Reading the old rows by their addresses takes 2.5 times
  as long in 50 M rows: random keys are spread over ten times as many fragments. So 1.5 is out of reach for them. The feed
  takes 1.5 times as long as that reading in 5 M rows, and 1.7 times in 50 M. The rest are deletion vectors of the fragments.
* **`cut make` over busy tables, on two cores** (cuts). It takes 19 s, 40 s beside three readers that never pause, and rows
  are seen twice as late meanwhile. On a quieter day these were 15 s, 20 s and 2.2 times.
  - A process that only computes for as long as the command does, 8 s, takes 44 s under that load, and rows are seen 1.5
    times as late. The broker, two members, the flusher, the producer, three readers and the store share the two cores with
    it. In production most of them are on other machines. So 12 s are out of reach here.
  - The command reads all unmerged segments of each table: some 170 requests for a table, and 47 for an idle one.
  - A snapshot waits for some sixty requests one after the other, 2 s in all. Half of them are Lance's: it makes a branch,
    writes its metadata twice, and commits.
* **Avro and Protobuf in whole ingest** (formats). Decoding takes 0.12 us of the 3.9 that a row takes.
  - Kafka's client makes a Python object of each record: that is the consumer alone, 1.1 us. Then ingest asks each object for
    offset, time, key, value and headers, and weighs it. This code holds Python's interpreter lock, and numpy takes it for
    each of its calls. Arrow's JSON reader does not, and runs on the other core. So no format is faster than JSON here, and
    0.45 of the consumer is out of reach. A second process has a lock of its own.
  - In a profile, the threads that decoded waited for the lock in nine tenths of their time. Since then the loop waits for
    them instead. That was 12 % more rows a second for 10 % less processor time, in four pairs of runs of Avro after the
    figures of this page were taken. Other times between two switches of threads, one decoder instead of two, and larger
    chunks made it slower or changed nothing.
  - Rows with vectors are 1.6 kB in Protobuf and 7.9 kB in JSON. Ingest writes each row twice, into a segment and a flush.
    Decoding is 0.6 us of 21, so no other decoder would reach 4 times JSON.
* **JSON of Kafka Connect with schemas** (formats). Each value repeats its schema of 3 kB, which is looked at before the
  payload is. Avro with a schema registry has the same types in a fraction of the bytes.
* **Change events in Avro, against the same rows in Avro** (formats). Each event has four headers of 175 bytes, and the rows
  have none. Asking for them takes 2.5 us of an event's 7, more than the envelope does (headers).
* **A change in a folder's catalog of 10,000 tables** (cuts). It takes 49 to 52 ms. The list of tables is one object of 3.1
  MB. The way to the store takes 30 ms, and encoding the list 5 to 10 ms.
* **Upserts given as Arrow, against LakeSoul** (peers, b).
  - LakeSoul writes sorted rows and looks for no old rows, so each of its reads merges by key: 1.8 s for all columns (c), 0.9
    s by lancewal's reader. Reads of a Lance table need not merge by key. So a merge must find the replaced rows and hide
    them. Random keys touch every fragment.
  - Lance's own calls, given the rows to hide, take 1.0 to 1.3 times as long as LakeSoul for 100,000 rows, and 1.6 to 2.3
    times for 10,000 (eight runs). lancewal takes 1.5 to 2.0 times as long as these calls. The difference is the lookup, the
    key index and the records that prevent a second merge of the same rows.
  - The aims came from figures that include the time in which LakeSoul reads its input file. With that time included,
    lancewal takes 1.3 to 1.6 times as long for 100,000 rows and 2.5 to 3.2 times for 10,000.
  - Lance takes 8 ms to write 10,000 rows and 33 ms for 100,000. Half of this time compresses texts. Without compression
    these files would be a fifth larger, and files of repetitive texts more than that.
  - After large rounds every fragment already hides rows, and each merge writes the deletion vector of every fragment again.
    Compaction ends that.
* **All columns of a named snapshot, by lance-spark** (peers, d). The file format of the tables makes the difference, not the
  snapshot. lance-spark 0.4 writes Lance's file format 2.0, which does not compress texts. lancewal's tables have pylance's
  default, 2.2. lance-spark took 0.60 s of CPU time for 1.5 M rows in 2.0, and 0.77 s for the same rows in 2.2 (0.81 s in
  2.1), in four files of each format. They take 151 MB of disk in 2.0 and 106 MB in 2.2. The times are medians of nine, from
  26 November, with other work on the machine. lance-spark's own table has more fragments (18 against 8, after four rounds of
  40,000 rows into 1 M) and as many hidden rows to skip (144,000 in both).
* **Merges soon after many files were deleted** (merge; peers, b). A merge of random keys creates a file for every fragment,
  and some twenty more. The benchmark's disk is an ext4 without a journal. On such a disk Linux checks every inode that was
  freed in the last minutes before it creates a file, as a profile of the kernel shows. Earlier runs delete their tables.
  Right after them a merge of 10,000 rows with its flush took up to 60 ms, and 35 ms without deletions before it. On an ext4
  with a journal it took 34 to 38 ms. Wait five minutes after deleting many files before you measure.
* **Many rows, flush included** (merge). The aim of 2, from the MemTable, is met on one machine and missed on the other. On
  the machine of 23 November a flush took 67 ms for 250,000 rows and 1.2 s for 2.5 M. On the machine of 26 November it takes
  112 to 121 ms and 1.6 s. The code of 23 November, run on the later machine, takes 112 to 115 ms and 1.7 s. Ingest shows the
  same: 0.65 of the floor on the earlier machine and 0.60 on the later one, also for the earlier code.
* **Memory of ingest** (ingest). Peaks were 829 to 871 MiB until ingest had one heap. The rates on this page are from 27
  November, before that change, on a quiet machine. On 28 November the machine had a load of 10 to 40, and floor and ingest
  differed twofold from run to run. Processor time of 3 M rows, in turns: 19.2 s with one heap and 19.7 s without (mixed),
  13.4 s and 14.6 s (upserts). Peaks: 570 and 769 MiB (mixed), 576 and 731 MiB (upserts).
* **Patches, against `merge_insert` that rewrites columns** (merge-strategies). Both sides rewrite the patched column for all
  rows, and write nothing else of size, so there is little to gain: 0.97 to 1.16. `merge_insert` itself chooses
  `rewrite_rows` here, which takes 2.4 to 2.9 times as long as lancewal. Predicted times are shorter than measured times: the
  cost model (`lancewal_flusher.tasks.cost`) was calibrated on the machine of 23 November, and the machine of 27 November
  took 1.9 to 2.8 times as long. Decisions depend only on ratios of costs.
* **Freshness on a local folder** (freshness). It was 128 ms (p50) and 283 ms (p99) on the machine of 1 December, within the
  aim, and 397 and 1,103 ms on the machine of 27 November. There one strong read took 0.18 s instead of 0.07 s while merges
  ran. The machine made the difference, not the code: the code from the start of 27 November ran in turns with that of its
  end. It took 343 and 416 ms (p50) against 409 and 407 ms, and 1,099 and 1,143 ms (p99) against 1,112 and 1,161 ms.
* **A store 30 ms away** (distance). Each request that waits for the answer to another costs 30 ms.
  - To open a table whose rows are all merged, and read it, takes eight such requests: 0.26 s without any computing. They
    list and read the contract, list the versions of the state page, ask for the number after the newest, and read the
    newest. Three requests are Lance's: they open data files and read rows. The order matters: a page version was the newest
    if it is read after the next number was absent.
  - A read between two merges asks for the next numbers of the state page in eight of its requests. Five versions of the page
    are written between two of these reads, and the reader asks for all possible numbers at once. With one version less there
    would be one request less.
  - A merge takes 8 rounds of requests until its commit. Five requests are Lance's own commit of a table given by its
    address. Reading and writing rows come on top.
* **512 partitions 30 ms away** (distance). The table has four state pages, each a chain of versions, and a reader asks each
  for its next numbers. When two members start or end, the rest of the time is Kafka's consumer group. The group assigns
  partitions to the first member alone and then to both. The first group of a broker also makes Kafka create its topic of
  offsets. A start takes each member 0.6 s of Python imports, then two joinings of the group of at most half a second, which
  wait for heartbeats, and two claims of 256 partitions one after the other.
* **10,000 rows/s into many partitions on two cores** (steady). The broker, two members, the flusher, the producer and the
  reader share two cores. With 64 partitions the broker takes half a core, and so do both members together; with 512 each
  takes three quarters. An eighth of the partitions is sealed, flushed and merged at a time, and fragments are compacted.
  While that computes, reads wait, and the rows that they show are older by this wait. Requests are not the reason: most
  reads of 64 partitions take 0.2 to 0.4 s, of which the reader computes for 0.1 s. The slowest reads (p99) are those after a
  merge. With generations of 250 segments instead of the 354 of decision 0046, freshness was 519 (p50) and 1,132 ms (p99).
  These figures vary with the machine.
* **512 partitions at 10,000 rows/s on two cores** (steady). A read takes 0.1 to 0.2 s of CPU time if nothing was merged
  since the read before, and 0.5 to 0.7 s after a merge. It lasts three to five times as long: broker and members take more
  than one core, and the flusher, the producer and the store share the other. For the same reason members store a segment
  every 200 ms instead of every 100 ms. Generations of 125 segments are nearly the best there: 250 segments gave a p50 of 8.4
  s (with a profiler running), and 50 gave 4.1 s. On a local folder with no other work, plans of 512 partitions take 37 ms
  warm and 1.2 s cold (partitions).
* **Ingest of many partitions** (partitions). Each poll and each segment has rows of all partitions: some 20 rows of each of
  512 in a poll of 10,000.
  - With default settings, the polls that arrive while a segment is written go together into the next segment: up to 60,000
    rows if ingest lags. A region in a segment then costs, per row, a sixth. The table's next row has a segment for each
    poll, as when there is time between polls.
  - A region in a segment took some 45 us of Python, in addition to the time of its rows (least of sixty segments, one
    thread). Nine of these went into slices of the decoded batch, which were made, freed and joined. Now an entry only refers
    to a place in that batch, and neighbouring places are joined as one.
  - A copy takes 8 to 9 us, for sixteen segments at once. It makes sure that a MemTable keeps no rows of other regions in
    memory. One `take` that orders all regions took 4 to 6 us, but for 64 partitions it took longer than the present way.
  - The rest is some seventy calls of Python functions, none of which dominates: poll, sizes, entry, header, checks and seal.
    With threads a segment takes longer, since the event loop and two decoders share Python's global interpreter lock.
* **Strong reads with unmerged keys, counts** (reads). Hidden rows cost one pass over all columns, whether one row in a
  hundred is hidden or one in ten. Quiet runs on two machines gave 1.11 and 1.21 for 1 %, and 1.25 and 1.21 for 10 %. A
  repeated count takes 1 to 2 ms. The first count after new records folds their keys and looks them up in the key index,
  which is two thirds of the time.
* **Plan of a newly opened table, lookup of a key** (reads). These are times, and the machine of this page is the slower one:
  1.5 s and 7.1 ms, against 0.84 s and 5.4 ms on the other machine.
* **Lookups of many keys** (reads). Three quarters of a lookup of 1,000 keys is Lance's `take` of the rows, and Lance's `IN`
  by a BTREE takes the same rows. 1,000 values of one column take 9 to 15 ms, and there are seven columns. Other ways took as
  long: sorted, fragment by fragment, in two or four parts at once, from the files directly, and as a scan of these
  addresses. The rows are read in blocks of 64 KiB, which need two thirds of the processor time of Lance's own block size.
* **Scans by plain Lance before a compaction** (merge; peers, c; no aim). Plain Lance reads hidden rows and drops them column
  by column. All columns took 1.3 to 1.8 times as long with 2 % of the rows hidden, and 2.0 to 2.7 times with 18 %. A table
  after `merge_insert` behaves alike. lancewal's reader drops hidden rows in one pass; for two narrow columns this pass takes
  as long as reading them. A service compacts a fragment once a fifth of its rows is hidden.
* **Searches with unmerged rows** (search). A search plans a strong read, asks Lance, and compares the rows that Lance does
  not know. For a text search, lancewal asks Lance for twice as many rows with their texts, and scores these texts again.
  That takes about twice as long as Lance's own query of 1.5 to 3 ms. The plan, the unmerged rows and combining both take 3
  to 4 ms. So five times Lance's time is only some milliseconds. A phrase of frequent words is the slowest: lancewal looks at
  each place where an unmerged row has the rarest word of the phrase, and Lance does not look at those rows.
* **Vector queries during merges** (search). Each query is the first one of its table state, before and after a merge of
  10,000 rows of 1.6 kB. Before the merge, the query reads the vectors from the flush and looks up the rows that they
  replace. That takes 20 ms for tables of any size, as much as a query of a small table. After the merge, the query does not
  read the merged vectors again, but it compares all merged rows that no index covers: up to 80,000 here, and none in the
  query without merges.
* **Each round merged before the next** (peers, a). The whole latency of Kafka, of sealing by age and of merging lies between
  two rounds. Producers that do not wait are shown in the row *in a stream*."""
