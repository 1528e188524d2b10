"""Own the client that waits for each answer: a method for each question, so it is as long as the API has questions."""
# Made by `make client`: change what it is made of.

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Self, TypeVar, Unpack

import httpx
import pyarrow as pa

from subsetd import questions, shapes
from subsetd._asking import (
    FIRST_WAIT,
    LARGEST_PAGE,
    LONGEST_SILENCE,
    LONGEST_WAIT,
    JobFailed,
    Problem,
    Sent,
    address,
    asked_of,
    csv_of,
    read_matrix,
    seconds_to_wait,
)
from subsetd._tables import table_of

Item = TypeVar("Item")
Columns = Sequence[Sequence[str]]
"""Columns of one side, each as (schema, table, column)."""


class Rows(Generic[Item]):
    """Be the items of an answer that has pages, which are asked for while one goes through them.

    Each page is computed from the newest version of the state; `pages` gives them whole, with their versions.
    """

    def __init__(self, client: Client, path: str, asked: Mapping[str, Any], shape: type) -> None:
        self._client = client
        self._path = path
        self._asked = {"limit": LARGEST_PAGE, **asked_of(asked)}
        self._shape = shape

    def __iter__(self) -> Iterator[Item]:
        for page in self.pages():
            yield from page["items"]

    def pages(self) -> Iterator[dict[str, Any]]:
        """Give the pages as the service answers them."""
        cursor = None
        while True:
            page = self._client.get(self._path, **self._asked, cursor=cursor)
            yield page
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def list(self) -> list[Item]:
        """Give all items."""
        return list(self)

    def arrow(self) -> pa.Table:
        """Give all items as an Arrow table: inner objects as columns `outer.inner`, times as timestamps."""
        items: Any = self.list()
        return table_of(items, self._shape)

    def pandas(self) -> Any:
        """Give all items as a DataFrame; needs pandas."""
        return (self.arrow()).to_pandas()


class Client:
    """Ask a service at an address; use it in a `with` block, or close it.

    `key` is sent with each request. Where the service is busy or its database away, what changes nothing is asked
    again for `patience` seconds. Raises `Problem` for what it refuses, httpx's errors where it cannot be reached.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8321",
        *,
        key: str | None = None,
        timeout: float = 60.0,
        patience: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)
        self._patience = patience

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, **asked: Any) -> Any:
        """Ask a route that has no method here, by its path; give its JSON."""
        return (self._ask("GET", path, params=asked)).json()

    # The state

    def state(self) -> shapes.State:
        """Describe the state: version, counts, sources, and up to where each feed is applied."""
        answer: shapes.State = self.get(address("state"))
        return answer

    def attributes(self, **asked: Unpack[questions.ListAttributes]) -> Rows[shapes.Attribute]:
        """List the columns with their counters."""
        return Rows(self, address("attributes"), asked, shapes.Attribute)

    def clusters(self, **asked: Unpack[questions.ListClusters]) -> Rows[shapes.Cluster]:
        """List the sets of columns that share values which no other has."""
        return Rows(self, address("clusters"), asked, shapes.Cluster)

    def dead_letters(self, **asked: Unpack[questions.ListDeadLetters]) -> Rows[shapes.DeadLetter]:
        """List the records of feeds that were set aside."""
        return Rows(self, address("dead_letters"), asked, shapes.DeadLetter)

    def audits(self) -> Rows[shapes.Audit]:
        """List what audits of the served INDs found, newest first."""
        return Rows(self, address("audits"), {}, shapes.Audit)

    # Inclusion dependencies

    def uinds(self, **asked: Unpack[questions.ListUinds]) -> Rows[shapes.Uind]:
        """List the inclusion dependencies that hold, or held `as_of` a version."""
        return Rows(self, address("uinds"), asked, shapes.Uind)

    def pair(self, dependent: str, referenced: str) -> shapes.Pair:
        """Explain a pair of columns: does it hold, by how much does it fail, which values are missing, since when."""
        answer: shapes.Pair = self.get(address("uinds", dependent, referenced))
        return answer

    def missing(self, dependent: str, referenced: str) -> Rows[shapes.MissingValue]:
        """List the values of the dependent column that the referenced one lacks."""
        return Rows(self, address("uinds", dependent, referenced, "missing"), {}, shapes.MissingValue)

    def bootstraps(self) -> list[shapes.Bootstrap]:
        """List the bootstraps that run, and those that died or failed since their source was bootstrapped last."""
        answer: list[shapes.Bootstrap] = (self.get(address("bootstraps")))["items"]
        return answer

    def history(self, dependent: str, referenced: str) -> Rows[shapes.CoefficientSpan]:
        """List what the coefficient of a pair was, newest first; between two spans it is not known."""
        return Rows(self, address("uinds", dependent, referenced, "history"), {}, shapes.CoefficientSpan)

    def changes(self, **asked: Unpack[questions.ListChanges]) -> Rows[shapes.Transition]:
        """List the inclusion dependencies that appeared or broke after the version `since`."""
        return Rows(self, address("changes"), asked, shapes.Transition)

    def watch(self, *, every: float = 1.0, **asked: Unpack[questions.ListChanges]) -> Iterator[shapes.Transition]:
        """Give what appears and breaks from now on, or after the version `since`, each once, and never end.

        The service is asked each `every` seconds, and answers in some microseconds while there is nothing new. What
        came first is given first, also with `newest_first`.
        """
        asked.pop("newest_first", None)
        since = asked.get("since")
        known = (self.state())["version"] if since is None else since
        while True:
            now = {**asked, "since": known, "limit": LARGEST_PAGE}
            response = self._ask("GET", address("changes"), now, {"If-None-Match": f'"{known}"'})
            if response.status_code == httpx.codes.NOT_MODIFIED:
                time.sleep(every)
                continue
            page = response.json()
            while True:
                yield from page["items"]
                if page["next_cursor"] is None:
                    break
                page = self.get(address("changes"), **now, cursor=page["next_cursor"])
            known = page["version"]

    def stream(self, since: int | None = None) -> Iterator[shapes.Transition]:
        """Give what `watch` gives, of all columns, as the service sends it; a lost connection is opened anew."""
        last = str((self.state())["version"] if since is None else since)
        while True:
            try:
                with self._http.stream(
                    "GET", address("stream"), headers={"Last-Event-ID": last}, timeout=LONGEST_SILENCE
                ) as response:
                    if not response.is_success:
                        response.read()
                        raise Problem.of(response)
                    event: dict[str, str] = {}
                    left = b""
                    for chunk in response.iter_bytes():
                        # A value may have what httpx takes for the end of a line: U+0085, U+2028, U+2029.
                        *lines, left = (left + chunk).split(b"\n")
                        for line in lines:
                            name, _, value = line.decode().partition(": ")
                            event[name] = value
                            if not line:  # the event is whole
                                last = event.get("id", last)
                                yield from json.loads(event.get("data", "{}")).get("items", ())
                                event = {}
            except httpx.TransportError:
                pass  # what is next begins behind what was received whole
            time.sleep(FIRST_WAIT)
            self.state()  # tells of a service that is away

    # Inclusion coefficients

    def coefficients(self, **asked: Unpack[questions.ListCoefficients]) -> Rows[shapes.Coefficient]:
        """List inclusion coefficients: of a pair, of a column against all, the `top` ones, or of all pairs."""
        return Rows(self, address("coefficients"), asked, shapes.Coefficient)

    def coefficient_matrix(self, **asked: Unpack[questions.GetMatrix]) -> pa.Table:
        """Give the coefficients of all chosen pairs: a row for each dependent, a column for each referenced one."""
        accept = {"Accept": "application/vnd.apache.arrow.stream"}
        return read_matrix((self._ask("GET", address("coefficients", "matrix"), asked, accept)).content)

    def estimates(self, dependent: str, referenced: str, level: float | None = None) -> shapes.PairEstimates:
        """Give one pair's coefficient by every method, each with its interval."""
        answer: shapes.PairEstimates = self.get(address("coefficients", dependent, referenced), level=level)
        return answer

    def sketches(self) -> Rows[shapes.Sketch]:
        """List the sketches of columns, and the uploaded ones."""
        return Rows(self, address("sketches"), {}, shapes.Sketch)

    def download_sketch(self, column: str) -> bytes:
        """Give the bytes of a column's sketch."""
        return (self._ask("GET", address("sketches", column))).content

    def upload_sketch(self, name: str, sketch: bytes) -> shapes.Sketch:
        """Keep a sketch of a column that lives elsewhere; `sketch:NAME` then stands where a column is named."""
        headers = {"Content-Type": "application/octet-stream"}
        response = self._ask("PUT", address("sketches", f"sketch:{name}"), headers=headers, content=sketch)
        answer: shapes.Sketch = response.json()
        return answer

    def delete_sketch(self, name: str) -> None:
        """Forget an uploaded sketch."""
        self._ask("DELETE", address("sketches", f"sketch:{name}"))

    # Keys, foreign keys, contracts

    def keys(self, **asked: Unpack[questions.ListKeys]) -> Rows[shapes.KeyAnswer]:
        """List what tells rows apart: columns that are unique or nearly, and tracked keys."""
        return Rows(self, address("keys"), asked, shapes.KeyAnswer)

    def track_key(self, schema: str, table: str, columns: list[str], source: str | None = None) -> shapes.Tracking:
        """Track columns as a key, and wait until it is; raise JobFailed when it cannot be."""
        sent = asked_of({"schema": schema, "table": table, "columns": columns, "source": source})
        answer = self._send(address("keys"), sent)
        where = address("keys", "trackings", answer["tracking_id"])
        ended: shapes.Tracking = self._ended(answer, where, "message")
        return ended

    def drop_key(self, attribute_id: int) -> None:
        """Track a key no longer."""
        self._ask("DELETE", address("keys", attribute_id))

    def foreign_keys(self, **asked: Unpack[questions.ListForeignKeys]) -> Rows[shapes.KeyCandidate]:
        """List the candidates for foreign keys that a method found last, the likeliest first."""
        return Rows(self, address("foreign-keys"), asked, shapes.KeyCandidate)

    def declared_foreign_keys(self) -> Rows[shapes.DeclaredKey]:
        """List the foreign keys that sources declare, and whether their values hold."""
        return Rows(self, address("foreign-keys", "declared"), {}, shapes.DeclaredKey)

    def foreign_key_evidence(self, **asked: Unpack[questions.ExplainForeignKey]) -> shapes.KeyEvidence:
        """Say of a candidate why it ranks where it does, and what speaks against it."""
        answer: shapes.KeyEvidence = self.get(address("foreign-keys", "evidence"), **asked)
        return answer

    def find_foreign_keys(
        self, method: shapes.Method = "combined", min_coefficient: float | None = None, **how: Any
    ) -> shapes.KeyRefresh:
        """Find the candidates of the newest version, and wait until they are kept, however long that takes.

        `how` has what else `POST /api/v1/foreign-keys/refreshes` takes: `keys`, `cells`, `tuple_cells`, `estimator`.
        """
        sent = asked_of({"method": method, "min_coefficient": min_coefficient, **how})
        answer: shapes.KeyRefresh = self._send(address("foreign-keys", "refreshes"), sent, timeout=None)
        return answer

    def export_foreign_keys(self, **asked: Unpack[questions.ExportForeignKeys]) -> str:
        """Give the foreign keys that were accepted as a file's text, and with a method also what it suggested last."""
        return (self._ask("GET", address("foreign-keys", "export"), asked)).text

    def decisions(self) -> Rows[shapes.Decision]:
        """List what was decided of foreign keys, newest first."""
        return Rows(self, address("foreign-keys", "decisions"), {}, shapes.Decision)

    def decide(
        self,
        dependent: Columns,
        referenced: Columns,
        verdict: shapes.Verdict,
        *,
        by: str,
        note: str | None = None,
        seen: shapes.Verdict | shapes.Undecided | None = None,
    ) -> shapes.Decision:
        """Keep a decision about a foreign key; to accept makes a contract, unless there is one.

        Raises Problem (409) where its verdict is not what was `seen`; None: whatever it is.
        """
        of = {"dependent": dependent, "referenced": referenced}
        sent = {**of, "verdict": verdict, "decided_by": by, "note": note, "seen": seen}
        answer: shapes.Decision = self._send(address("foreign-keys", "decisions"), sent)
        return answer

    def contracts(self) -> Rows[shapes.Contract]:
        """List the inclusions that are to hold, as they stand."""
        return Rows(self, address("contracts"), {}, shapes.Contract)

    def contract(self, contract_id: int) -> shapes.Contract:
        """Show a contract as it stands."""
        answer: shapes.Contract = self.get(address("contracts", contract_id))
        return answer

    def add_contract(
        self, dependent: Columns, referenced: Columns, *, by: str, least_coefficient: float = 1.0
    ) -> shapes.Contract:
        """Demand that so many of some columns' values are in others'."""
        sent = {"dependent": dependent, "referenced": referenced, "least_coefficient": least_coefficient}
        answer: shapes.Contract = self._send(address("contracts"), {**sent, "created_by": by})
        return answer

    def remove_contract(self, contract_id: int) -> None:
        """Forget a contract with its transitions."""
        self._ask("DELETE", address("contracts", contract_id))

    def contract_transitions(self, contract_id: int | None = None, since: int = 0) -> Rows[shapes.ContractTransition]:
        """List when a contract, or any, was violated and mended after a version."""
        own = [] if contract_id is None else [contract_id]
        return Rows(self, address("contracts", *own, "transitions"), {"since": since}, shapes.ContractTransition)

    # Watches: who is told when something breaks

    def watches(self) -> Rows[shapes.Watch]:
        """List the watches."""
        return Rows(self, address("watches"), {}, shapes.Watch)

    def show_watch(self, watch_id: int) -> shapes.Watch:
        """Show a watch."""
        answer: shapes.Watch = self.get(address("watches", watch_id))
        return answer

    def add_watch(
        self, name: str, rule: Mapping[str, Any], channel: Mapping[str, Any], *, by: str, **more: Any
    ) -> shapes.Watch:
        """Watch something, and say where alerts go; `more` are `debounce_seconds`, `tell_resolved`, `with_values`.

        A rule has a `kind` and what it speaks of, a channel a `kind` and `url`, `to` or `topic`.
        """
        sent = {"name": name, "rule": rule, "channel": channel, "created_by": by, **more}
        answer: shapes.Watch = self._send(address("watches"), sent)
        return answer

    def replace_watch(
        self, watch_id: int, name: str, rule: Mapping[str, Any], channel: Mapping[str, Any], *, by: str, **more: Any
    ) -> shapes.Watch:
        """Put another watch in its place; without a secret it keeps its own, if its address is the same."""
        sent = {"name": name, "rule": rule, "channel": channel, "created_by": by, **more}
        answer: shapes.Watch = (self._ask("PUT", address("watches", watch_id), json=sent)).json()
        return answer

    def remove_watch(self, watch_id: int) -> None:
        """Forget a watch; its alerts stay in the history."""
        self._ask("DELETE", address("watches", watch_id))

    def test_watch(self, watch_id: int) -> shapes.Alert:
        """Send an alert that says it is a test; what became of it is among the alerts."""
        answer: shapes.Alert = self._send(address("watches", watch_id, "test"), {})
        return answer

    def alerts(self, **asked: Unpack[questions.ListAlerts]) -> Rows[shapes.Alert]:
        """List what was told, is to be told, or was kept silent, newest first."""
        return Rows(self, address("watches", "alerts"), asked, shapes.Alert)

    def silences(self) -> list[shapes.Silence]:
        """List the silences that are in force, and the last that were."""
        answer: list[shapes.Silence] = (self.get(address("watches", "silences")))["items"]
        return answer

    def add_silence(
        self, until: datetime, reason: str, *, by: str, watch_id: int | None = None, pattern: str | None = None
    ) -> shapes.Silence:
        """Let a watch, or all that a pattern matches, be silent until a time, which has a zone."""
        sent = {"until": until.isoformat(), "reason": reason, "watch_id": watch_id, "pattern": pattern}
        answer: shapes.Silence = self._send(address("watches", "silences"), {**sent, "created_by": by})
        return answer

    def end_silence(self, silence_id: int) -> None:
        """End a silence now."""
        self._ask("DELETE", address("watches", "silences", silence_id))

    def loads(self) -> list[shapes.Load]:
        """List the announced loads that are waited for, and the last that were."""
        answer: list[shapes.Load] = (self.get(address("watches", "loads")))["items"]
        return answer

    def announce_load(
        self, schema: str, table: str | None = None, *, by: str, until: datetime | None = None
    ) -> shapes.Load:
        """Let watches wait for the load of a table, or of a schema: what is half loaded is not told of."""
        sent = {"schema": schema, "table": table, "until": None if until is None else until.isoformat()}
        answer: shapes.Load = self._send(address("watches", "loads"), {**sent, "created_by": by})
        return answer

    def end_load(self, load_id: int) -> None:
        """Say that a load has ended."""
        self._ask("DELETE", address("watches", "loads", load_id))

    # Corpora

    def corpora(self) -> Rows[shapes.ListedCorpus]:
        """List the corpora."""
        return Rows(self, address("corpora"), {}, shapes.ListedCorpus)

    def corpus(self, corpus: str) -> shapes.CorpusDetail:
        """Show a corpus, what its served generation holds, and its last refresh."""
        answer: shapes.CorpusDetail = self.get(address("corpora", corpus))
        return answer

    def add_corpus(self, name: str, location: str, kind: shapes.CorpusKind, **more: Any) -> shapes.Corpus:
        """Register a corpus; `more` are `settings`, `schedule`, `time_limit_seconds`, `retries`."""
        sent = {"name": name, "location": location, "kind": kind, **more}
        answer: shapes.Corpus = self._send(address("corpora"), sent)
        return answer

    def remove_corpus(self, corpus: str) -> None:
        """Forget a corpus with all that was found in it; its files stay."""
        self._ask("DELETE", address("corpora", corpus))

    def refresh_corpus(self, corpus: str, *, full: bool = False) -> shapes.Refresh:
        """Find the INDs of a corpus anew, and wait until they have landed; raise JobFailed when they do not."""
        answer = self._send(address("corpora", corpus, "refreshes"), {"full": full})
        where = address("corpora", corpus, "refreshes", answer["refresh_id"])
        ended: shapes.Refresh = self._ended(answer, where, "fault")
        return ended

    def corpus_refreshes(self, corpus: str) -> Rows[shapes.Refresh]:
        """List the refreshes of a corpus, newest first."""
        return Rows(self, address("corpora", corpus, "refreshes"), {}, shapes.Refresh)

    def corpus_inds(self, corpus: str, **asked: Unpack[questions.ListCorpusInds]) -> Rows[shapes.Ind]:
        """List the inclusion dependencies of a corpus, or those of one side; all pages are of one generation."""
        return Rows(self, address("corpora", corpus, "inds"), asked, shapes.Ind)

    def corpus_pair(self, corpus: str, **asked: Unpack[questions.ShowCorpusPair]) -> shapes.CorpusPair:
        """Say of two columns of a corpus whether one is in the other, and whether the pair was examined."""
        answer: shapes.CorpusPair = self.get(address("corpora", corpus, "pair"), **asked)
        return answer

    def corpus_changes(self, corpus: str, generation: int | None = None) -> Rows[shapes.Change]:
        """List the inclusion dependencies that appeared or went with a generation."""
        return Rows(self, address("corpora", corpus, "changes"), {"generation": generation}, shapes.Change)

    def corpus_tables(self, corpus: str, generation: int | None = None) -> Rows[shapes.Table]:
        """List the tables of a corpus."""
        return Rows(self, address("corpora", corpus, "tables"), {"generation": generation}, shapes.Table)

    def corpus_columns(self, corpus: str, table: str, generation: int | None = None) -> Rows[shapes.Column]:
        """List the columns of a table of a corpus, with the filters that leave them out."""
        where = address("corpora", corpus, "tables", table, "columns")
        return Rows(self, where, {"generation": generation}, shapes.Column)

    def joinable(self, rows: Sent | None = None, **asked: Unpack[questions.SearchJoinable]) -> shapes.JoinAnswer:
        """Find the tables of a corpus that join with rows, or with a tracked table, and wait until they are found.

        `rows` are the bytes or the path of a CSV, mappings, an Arrow table or a frame; without them `schema` and
        `table` name a tracked table. Raises JobFailed for a long search that fails.
        """
        headers = {} if rows is None else {"Content-Type": "text/csv"}
        content = None if rows is None else csv_of(rows)
        found = (self._ask("POST", address("joinable"), asked, headers, content=content)).json()
        where = address("joinable", found["search_id"] or 0)
        answer: shapes.JoinAnswer = (self._ended(found, where, "message"))["answer"]
        return answer

    # The graph of INDs between tables: of the tracked tables, or of a corpus

    def graph(self, corpus: str | None = None) -> shapes.Graph:
        """Count tables, edges and components."""
        answer: shapes.Graph = self.get(_graph(corpus))
        return answer

    def graph_components(self, corpus: str | None = None) -> Rows[shapes.Component]:
        """List the connected components, the largest first."""
        return Rows(self, _graph(corpus, "components"), {}, shapes.Component)

    def graph_tables(
        self, corpus: str | None = None, **asked: Unpack[questions.ListGraphTables]
    ) -> Rows[shapes.GraphTable]:
        """List the tables by how many they are joined with."""
        return Rows(self, _graph(corpus, "tables"), asked, shapes.GraphTable)

    def graph_excerpt(self, corpus: str | None = None, **asked: Unpack[questions.GetGraphExcerpt]) -> shapes.Excerpt:
        """Give some tables with the edges between them."""
        answer: shapes.Excerpt = self.get(_graph(corpus, "excerpt"), **asked)
        return answer

    def join_paths(self, corpus: str | None = None, **asked: Unpack[questions.FindGraphPaths]) -> shapes.Paths:
        """Find the shortest ways to join two tables."""
        answer: shapes.Paths = self.get(_graph(corpus, "paths"), **asked)
        return answer

    def export_graph(self, corpus: str | None = None, **asked: Unpack[questions.ExportGraph]) -> str:
        """Give the graph as GraphML, or its edges as CSV."""
        return (self._ask("GET", _graph(corpus, "export"), asked)).text

    def _send(self, path: str, sent: Mapping[str, Any], **more: Any) -> Any:
        return (self._ask("POST", path, json=sent, **more)).json()

    def _ended(self, answer: Any, path: str, why: str) -> Any:
        """Look at a job until it has ended, and give its last answer; `why` names the field that says why it failed."""
        wait = FIRST_WAIT
        while answer["state"] in ("queued", "running"):
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
            answer = self.get(path)
        if answer["state"] in ("failed", "cancelled"):
            raise JobFailed(answer[why] or f"It was {answer['state']}.")
        return answer

    def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> httpx.Response:
        left = self._patience
        while True:
            response = self._http.request(method, path, params=asked_of(params or {}), headers=headers, **more)
            if response.is_success or response.status_code == httpx.codes.NOT_MODIFIED:
                return response
            wait = seconds_to_wait(method, response)
            if wait is None or wait > left:
                raise Problem.of(response)
            left -= wait
            time.sleep(wait)


def _graph(corpus: str | None, *parts: str) -> str:
    return address(*([] if corpus is None else ["corpora", corpus]), "graph", *parts)
