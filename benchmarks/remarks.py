"""What the benchmark page says beside its figures: how peers are measured, which aims are missed, and why."""

from __future__ import annotations

PEERS = """
## peers

`python3 dev.py bench-peers` fetches Delta, Iceberg, Hudi, lance-spark and LakeSoul, each into an environment of its own
in the cache folder (about 3 GB), and gives them the same rows as lancewal, in turns.  Nothing else ever fetches a peer.
`--rows 100000 --rounds 3 --round-rows 5000` makes a short run, `--peers delta,lakesoul` and `--measures ab` a part of
it; `--output FILE` leaves this page as it is.  A peer that cannot be had is named, and the exit code is 3.

* a: from the first `produce` until the rows are merged and readable by plain Lance: broker, JSON, WAL, flushes,
  merges.  Peers are counted for the upsert of a cached DataFrame alone.  *In a stream*: all rounds produced one behind
  the other, against the same rounds of the peer.
* b: rows given as Arrow: flush, merge and key index, without WAL, against LakeSoul's native upsert.  LakeSoul does
  not look for old rows: its reads merge by key, those of the Lance table need not. *pylance, rows known*: what the same
  rows, deletion files and commit take by Lance's own calls, for whoever knows already which rows are replaced.
* c: reads after these rounds, by lancewal's reader and by plain Lance, before and after `lancewal compact --all`.
* d: a [named snapshot](how-to/keep-a-snapshot.md) after the rounds, read by lance-spark, in turns with lance-spark's own
  table after the same rounds of its MERGE."""


MISSED = """
## Aims that are missed, and what else is slow

* **Upserts given as Arrow, against LakeSoul** (b). LakeSoul writes sorted rows and looks for nothing; each of its reads then
  merges by key (c: 1.8 s for all columns, 0.9 s by lancewal's reader). A Lance table needs no merging afterwards, so the
  rows that are replaced must be found, and hidden in every fragment, since random keys touch all of them. Lance's own calls
  for that take 1.0 to 1.3 times as long as LakeSoul for 100,000 rows and 1.6 to 2.3 times for 10,000 (eight runs), the rows
  to be hidden given to them; lookup, key index and the records by which nothing is merged twice make it 1.5 to 2.0 times
  that. With the reading of its file counted for LakeSoul, as in the figures that the aims came from, lancewal takes 1.3 to
  1.6 times as long for 100,000 rows and 2.5 to 3.2 times for 10,000. Half of what Lance takes to write the rows (8 and
  33 ms) goes into compressing texts; stored as they are, they would make these files a fifth larger, and files of texts
  that repeat themselves more. Behind large rounds every fragment hides rows already, and each merge writes what hides them
  anew; compaction ends that.
* **All columns of a named snapshot, by lance-spark** (d). lance-spark 0.4 makes its tables in Lance's file format 2.0, which
  leaves texts as they are; ours are as pylance makes them, in 2.2. The same 1.5 M rows in four files of each took it
  0.60 s of the CPUs in 2.0 and 0.77 in 2.2 (0.81 in 2.1; medians of nine, 26 November, beside other work), and 151 MB
  of disk against 106. Its table has more fragments and as many rows to pass over: after four rounds of 40,000
  into 1 M, 18 against 8, and 144,000 in both. So it is the format of the table, and no choice of a snapshot's.
* **Merges where files were just deleted** (merge, b). A merge of random keys makes a file for every fragment, and some
  twenty more. The disk measured on is an ext4 without a journal: where one makes a file, Linux looks at every inode that was
  freed in the last minutes and passes it over (a profile of the kernel shows it). Right behind other runs, which delete
  their tables, a merge of 10,000 rows with its flush took up to 60 ms, and 35 without deletions before it; on an ext4
  with a journal it took 34 to 38. Let five minutes pass before measuring where files were deleted.
* **Many rows, flush included** (merge). On the machine of 26 November a flush of 250,000 rows takes 112 to 121 ms, and of
  2.5 M 1.6 s, where that of 23 November took 67 ms and 1.2 s; the code of then, measured beside it on the later machine,
  takes 112 to 115 ms and 1.7 s. So the aims of 2 from the MemTable are kept on the one and missed on the other. So it is
  with ingest: 0.65 of the floor there, 0.60 here, for the code of then as well.
* **Memory of ingest** (ingest). It took 829 to 871 MiB until it had one heap. Rates are those of a quiet machine before that:
  on 28 November it had a load of 10 to 40, and floor and ingest differed twofold from run to run. Processor time of 3 M rows,
  in turns: 19.2 s with one heap and 19.7 without (mixed), 13.4 and 14.6 (upserts); peaks 570 and 769 MiB, 576 and 731.
* **Patches, against `merge_insert` that rewrites columns** (merge-strategies). Both write the patched column of all rows anew,
  and neither anything else of size, so there is little to be had: 0.97 to 1.16. `merge_insert` chooses `rewrite_rows` here by
  itself, which takes 2.4 to 2.9 times as long as ours. The machine of 27 November took 1.9 to 2.8 times as long as that of
  23 November, from which the costs of `lancewal_flusher.tasks.cost` are: that is why less time is predicted than taken. What
  they decide follows from ratios.
* **Freshness on a local folder** (freshness). 165 and 349 ms (p50, p99) on the machine of 26 November, 397 and 1,103 on that
  of 27 November, where one strong read takes 0.18 s instead of 0.07 while merges run. It is the machine: the code as it was
  when that day began, in turns with this one, took 343 and 416 ms (p50) beside 409 and 407, and 1,099 and 1,143 (p99) beside
  1,112 and 1,161.
* **A store 30 ms away** (distance). What waits for one another costs 30 ms each. Opening a table of which all is merged
  and reading it is eight requests one behind the other, 0.26 s by themselves: listing and reading the contract, listing
  the page of states, asking for the number behind the newest, reading the newest (in this order: what is seen to be there
  after the number behind it was absent was the newest), and three of Lance's, which open data files and read rows. Of the
  requests of a read between two merges eight ask for the next numbers of the page: five swaps lie between two of these
  reads, and all numbers that may be there are asked for at once. A swap less is a request less. A merge is 8 rounds to
  its commit, five requests of which are Lance's own in a commit by address, beside the reading and writing of rows.
* **512 partitions 30 ms away** (distance). Four state pages are four chains of versions, each asked for its next numbers.
  What two members that start, or end, take besides is Kafka's group: partitions are dealt out to the first alone and then
  to both, and with the first group of a broker it makes its topic of offsets. A start is 0.6 s of imports of each, two
  joinings of half a second at most, as heartbeats bring them, and two claims of 256 partitions one after the other.
* **10,000 rows/s into many partitions on two cores** (steady). Broker, two members, flusher, producer and reader share two
  cores: of 64 partitions the broker takes half of one, and the members together as much; of 512 three quarters each. An
  eighth of the partitions is sealed at a time, flushed and merged, and fragments are compacted meanwhile: while that
  computes, reads wait, and what they show is as old. No request forbids the aims: most reads of 64 partitions take 0.2 to
  0.4 s, 0.1 s of which is the reader's own computing; p99 are the reads behind a merge. Shorter generations than
  decision 0046 gives them (250 segments instead of 354) gave 519 and 1,132 ms. These figures swing with the machine.
* **512 partitions at 10,000 rows/s on two cores** (steady). A read takes 0.1 to 0.2 s of CPU where nothing was merged
  since the one before, 0.5 to 0.7 s behind a merge, and three to five times that, since broker and members take more than
  one core and the flusher, the producer and the store share the other. Members store a segment every 200 ms instead of every
  100, for the same reason. Generations of 125 segments are near the best there: 250 gave p50 8.4 s (beside a profiler), 50
  gave 4.1 s. On a local folder with nothing beside it, plans of as many partitions take 37 ms warm and 1.2 s cold
  (partitions).
* **Ingest of many partitions** (partitions). Each poll and each segment is of all partitions, some 20 rows of each of 512 in a
  poll of 10,000. With default settings what is polled beside a segment goes together into the next one, up to 60,000 rows
  where it lags: a region and segment then costs a sixth for each row. A segment of each poll, as rows come that leave time
  between polls, is the row below it. A region and segment took some 45 us of Python beside what its rows take (least of
  sixty segments, one thread). Nine of these were slices of the batch that was decoded, made, freed and joined: its rows are
  a place in that batch now, and what lies side by side is joined as one. 8 to 9 us are the copy by which a MemTable keeps no
  rows of other regions in memory, made of sixteen segments at once (ordered by one `take` of all regions it took 4 to 6 us,
  but of 64 partitions longer than now). The rest is some seventy calls of Python's functions, in poll, weights, entry,
  header, checks and seal, none of which stands out. In threads a segment takes longer than that: the loop and two decoders
  share Python's one lock.
* **Strong reads with unmerged keys, counts** (reads). Rows that are hidden cost a pass over all columns, be they one of a
  hundred or ten: quiet runs on two machines gave 1.11 and 1.21 for 1 %, 1.25 and 1.21 for 10 %. A count that is asked again
  takes 1 to 2 ms; the first behind new records folds their keys, and looks them up in the key index, which is two
  thirds of it.
* **Plan of a table opened anew, lookup of a key** (reads). These are times, and this machine is the slower one: 0.84 s and
  5.4 ms there, 1.5 s and 7.1 ms here.
* **Lookups of many keys** (reads). Lance's taking of the rows is three quarters of a lookup of 1,000 keys, and its BTREE
  `IN` takes the same rows. 1,000 values of a column take 9 to 15 ms, and there are seven columns. Sorted, fragment by
  fragment, in two or four parts side by side, from the files themselves, and as a scan of these addresses they took as
  long. They are read in blocks of 64 KiB, which take two thirds of the processor time of Lance's own size.
* **Scans by plain Lance before a compaction** (merge, c; no aim). Plain Lance reads hidden rows and drops them column by
  column: all columns took 1.3 to 1.8 times as long with 2 % of the rows hidden, 2.0 to 2.7 times with 18 %; `merge_insert`
  leaves the same behind. lancewal's reader drops them in one pass; of two narrow columns that takes as long as reading them.
  In a service, compaction takes a fragment once a fifth of it is hidden.
* **Searches with unmerged rows** (search). A search plans a strong read, asks Lance, and compares what Lance does not know. By
  text Lance is asked for twice as many rows, with their texts, which are scored anew; that takes about twice as long as its
  own query of 1.5 to 3 ms, and plan, unmerged rows and putting both together 3 to 4 ms. Five times as long is little. A phrase
  of frequent words is the slowest: each place where an unmerged row has its rarest word is looked at, and Lance does not look
  at those rows.
* **Vector queries during merges** (search). Each query is the first of its state, before and behind a merge of 10,000 rows
  of 1.6 kB. Before it the vectors are read from the flush, and it is looked up where the rows lie that they replace: 20 ms,
  whatever the size of the table, as much as a query of a small one. Behind it nothing of the merged rows is read again, but
  all merged rows that no index covers are compared: up to 80,000 here, which the quiet query has none of.
* **Each round merged before the next** (a). All of the latency of Kafka, sealing by age and merging stands between two
  rounds; producers that do not wait are the row *in a stream*."""
