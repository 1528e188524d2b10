"""Own the words of the report on joinable tables: what is measured, what the paper has, and why ours differs."""

from __future__ import annotations

INTRODUCTION = """# Joinable tables against the paper

What `make mate-report DATA=folder` measures and draws; it writes this page. Compared with Esmailoghli et al., *MATE:
Multi-Attribute Table Extraction* (VLDB 2022), whose tables, figures and sections are named. Its figures are in
brackets or said beside ours; where it has only a plot, what its text says of it.

**Corpus.** All lakes of the folder as one: {tables:,} tables, {rows:,} rows, {cells:,} cells that are not empty,
{values:,} distinct values, {width:.1f} columns a table. The paper has 145 million web tables and 17,000 tables of
open data, which are not at hand.

**Queries.** The paper's query tables as far as they are published with its code, most of them with two columns: WT,
OD (100) and Kaggle. OD (1k), OD (10k) and School are not. The others are tables of each lake, drawn at random. The
key is two columns of a table, drawn at random as in the paper. The table itself is left out of its answer; k = {k}.
Columns are drawn anew where a query has more than three million pairs of a fetched row and a key: two columns of
counts are no key.

| queries | number | distinct keys, mean |
|---|---:|---:|
{sets}

**Methods.** All find the same tables, which is checked. 128, 256, 512 are the bits of a super key.

* SCR fetches the rows that have a value of one key column, and compares their cells. MCR fetches by every key column,
  and compares the rows that are found by all. Table filters and initial column are those of MATE. JOSIE's variants
  are not built.
* MD5, Murmur (MurmurHash3), CityHash: all bits of the hash. SimHash: of pieces of three bytes.
* HT sets one bit for a value, LHBF two, BF {functions}: the paper's number of functions, by the mean number of
  columns. All take them from Murmur.
* XASH sets at most {ones} (Equation 5). *6 ones* is what the paper has for its 700 million values.
* *Counted bits* are ours ([design](design/2026-11-22-joinable-tables.md), section 3).

**Time** is CPU of one thread, index and super keys in memory, everything compiled but the loop over tables; the
quickest of {repetitions} repetitions after a first one. Seed {seed}, on {machine}.
"""

SUMMARY = """## In short

| | XASH 128 | BF 128 | counted bits 128 |
|---|---:|---:|---:|
| mean precision of all queries that join | {xash:.2f} | {bloom:.2f} | {counted:.2f} |
| pairs let through, of all that do not join | {xash_left:.2f} % | {bloom_left:.2f} % | {counted_left:.2f} % |

The paper's order holds for hashes that set half of their bits (worst), SimHash, and one bit a value. For the best two
it is turned round: Bloom filters let less through than XASH of the same size. Cells of these lakes are short and many
are numbers, of whose few characters XASH has little to choose; the paper names short values as its limit (section 9).
"""

RUNTIME = """## Runtime beside the baselines (Figure 4)

![Runtime beside the baselines](images/mate-runtime.svg)

{whole}

{after}

*The paper:* MATE is up to 13 times as fast as SCR and up to 61 times as fast as MCR. MCR is the faster of both on
open data, and the slower on web tables, where fetching by a second column does not scale. Fetching is not in its
times.

*Here* SCR takes {low:.1f} to {high:.1f} times as long as XASH once postings are fetched (most on {highest}). The gain
is small because SCR is compiled as the filter is and has the cells at hand, so that comparing a row's cells costs
about as many nanoseconds as comparing its super key; in the paper both are interpreted, and comparing cells costs
more. Most queries have few pairs, and their time is what the loop pays for each table. MCR has fewest pairs to
compare and is fastest after fetching, but fetches two to three times as long. What a filter is for is to leave cells
unfetched where that has a price: `make bench ONLY=mate-speed` has it, in Postgres.

Counted bits make a query's super keys when it is asked, and pay for it on small queries; all other filters look up
the hashes of values that the corpus has.
"""

HASHES = """## Runtime by hash (Table 2)

Without fetching, as in the paper.

{table}

*The paper:* XASH is fastest on every set, up to ten times as fast as BF. MD5, Murmur, CityHash and SimHash gain
little on SCR. Most are faster with 512 bits.

*Here* filters differ where pairs are many: on the last three sets. Hashes that set half of their bits are as slow as
SCR or slower, for they let so much through to the same comparison. All others lie close together: so few pairs are
left that neither the hash nor its size changes much, and what more bits spare, comparing them takes. The paper's XASH
also gains by a comparison that stops at the first bits, those of the length; here comparing is two instructions for
64 bits, and every filter pays the same.
"""

PRECISION = """## Precision (Table 3)

![Precision of the row filters](images/mate-precision.svg)

Mean over the queries that another table joins with (their number: {counts}), of pairs of a row and a key that reach
the comparison of cells.

{table}

Few of the paper's query tables join with anything here. So for all queries: pairs that reach the comparison without a
filter and do not join, and how many of them a filter lets through, in percent.

{every}

{left}

*The paper:* precision rises with the bits. XASH is best on average (0.57 at 128 bits, 0.90 at 512), then BF (0.47,
0.65).

*Here* precision rises with the bits, and MD5, Murmur and CityHash are alike and worst, then SimHash, as there. On the
paper's own query tables nearly everything is higher than there, as so few rows share a value with them. On the others
BF is before XASH, and with 512 bits LHBF is before BF; on owid it is also before counted bits, which have 128.
Causes:

* Cells are short. Of a year or a rank XASH sees one length and a few digits, which other cells of the row have too; a
  Bloom filter's bits depend on the whole value.
* The paper's number of functions is for the mean number of columns, and the rows of wider tables fill up. With two
  functions they do not, so that LHBF gains most from more bits.
* Equation 5 asks for as many ones as make values differ, whatever the size: XASH leaves most of 512 bits unused.
* A key such as (2, 2) asks for a value in two columns, and every filter that ORs hashes lets all rows with one 2
  through. Nearly all that LHBF lets through at 512 bits is of this kind. Counted bits tell these rows, and choose
  their functions by each table's width.
"""

TOP_K = """## Precision by k (section 7.5.1)

![Precision by k](images/mate-top-k.svg)

Queries: {name}.

{table}

*The paper:* from k = 2 to 20 XASH's precision rises by 4 %, BF's stays, and the others' falls slightly (it has no
figure of it).

*Here* k changes nothing: few tables have more than one key of a query, so that the k-th best ends no search early,
and every k looks at nearly all tables that have a posting. The paper's corpus has k tables that join well.
"""

COMPONENTS = """## XASH's components (Figure 5)

![Precision by XASH's components](images/mate-components.svg)

128 bits, of which {ones} at most are set. Up to *chars+len.+loc.* parts are added, with XASH comes the rotation; then
one is left out each: *any chars* takes the first characters of the alphabet for the rarest, digits first.

{table}

*The paper* (a plot): characters with their location filter more than the length; rotation removes 20 % of the false
pairs that are left; 512 bits come near to the ideal.

*Here* too characters with their location filter more than the length, and rotation removes {turned} of what is left.
Left out alone, location is missed most on owid and rotation about as much elsewhere. The length and the rarity of
characters are missed least: the rotation has the length too, and most cells are numbers, of whose digits the order of
rarity says little. 512 bits are far from the ideal: few of them are set, and repeated values pass.
"""

KEY_SIZES = """## Key sizes (Figure 6)

![Runtime and precision by key size](images/mate-key-sizes.svg)

{count} tables of {name} with ten columns and more; each key has the columns of the smaller ones.

{times}

{precisions}

{false}

{joins}

*The paper* (one table of open data): runtime falls with every column. Precision falls from two to three columns, for
97 % of the rows that join no longer do, and rises from four on.

*Here* runtime falls as well, though not at every step, since a further column may fetch more or join with other
tables. The Bloom filter's precision has the paper's course: it falls with the third column and rises from the fourth
on. XASH's stays where two columns have it and rises from eight on; with three columns and more even one bit a value
(HT) is more precise.
"""

INITIAL_COLUMN = """## Initial column (section 7.5.4)

Postings of other tables that a query fetches on average.

{table}

*The paper:* the column with fewest values (*cardinality*) fetches 179, the best would 83, the worst 728.

*Here* the guess by cardinality fetches several times what the best column would, and is hardly better than the order
of columns; on most sets the longest string is the better guess, as names are rarer than numbers. The index knows how
many postings each value has, so that ours need not guess: it is the best, but for the postings of the asking table,
which it counts too.
"""
