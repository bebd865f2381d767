"""The daemon's numbers as Prometheus reads them. Runs in the process of `copilotd metrics`, never in the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import asdict
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from copilotd.daemon.launch import LaunchError
from copilotd.daemon.metrics import BOUNDS_MS, Histogram, Metrics, Report
from copilotd.daemon.status import Status


class Daemon(Collector):
    """Asks the daemon at every scrape. One that does not run is `copilotd_up 0`; none is started."""

    def __init__(self, ask: Callable[[], Report]) -> None:
        self._ask = ask

    def collect(self) -> Iterator[Metric]:
        try:
            report = self._ask()
        except LaunchError:
            yield _up(False)
            return
        yield from families(report)
        yield from ProcessCollector(
            namespace="copilotd_daemon", pid=lambda: report.status.pid, registry=CollectorRegistry()
        ).collect()


def registry(ask: Callable[[], Report]) -> CollectorRegistry:
    """`ask` gives the daemon's numbers, or raises LaunchError."""
    found = CollectorRegistry()
    found.register(Daemon(ask))
    return found


def families(report: Report) -> Iterator[Metric]:
    yield _up(True)
    yield from _gauges(report.status)
    yield from _requests(report.metrics)
    yield from _tokens(report.metrics)
    stages = HistogramMetricFamily(
        "copilotd_stage_seconds",
        "Time of a request by stage: waiting, prompt, prefill, decode and text are the parts of `answer`; "
        "memory is an answer without the model",
        labels=["stage"],
    )
    for stage, histogram in report.metrics.stages:
        stages.add_metric([stage], buckets=_buckets(histogram), sum_value=histogram.sum_ms / 1e3)
    yield stages


def _up(up: bool) -> Metric:
    return GaugeMetricFamily("copilotd_up", "1 while the daemon runs", value=int(up))


def _gauges(status: Status) -> Iterator[Metric]:
    ready = int(status.state == "ready")
    yield GaugeMetricFamily("copilotd_ready", "1 while the models answer", value=ready)
    info = GaugeMetricFamily(
        "copilotd_model_info",
        "Always 1: what is loaded",
        labels=["version", "target", "draft", "quantisation", "device"],
    )
    info.add_metric([status.version, status.target, status.draft, status.quantisation, status.device], 1)
    yield info
    for name, about, value in (
        ("clients", "Editor windows", status.clients),
        ("documents", "Open documents", status.documents),
        ("kv_bytes", "Memory of the models' caches", status.kv_bytes),
        ("index_files", "Files in the workspace index", status.index.files),
        ("index_tokens", "Tokens in the workspace index", status.index.tokens),
    ):
        yield GaugeMetricFamily(f"copilotd_{name}", about, value=value)
    yield CounterMetricFamily("copilotd_loads", "Loads of models, tried ones too", value=status.loads)


_REQUESTS = {
    "answered": "Requests that got a suggestion",
    "cancelled": "Requests that the editor, or a newer request, ended",
    "typed_through": "Answers from memory: typed as suggested",
    "joined": "Requests that went on with a generation that was running",
    "shown": "Suggested texts; one that is typed along stays one",
    "accepted": "Suggestions taken whole",
    "accepted_in_part": "Takings of a word or a line",
    "accepted_characters": "Characters taken",
    "kept": "Texts taken that were there half a minute later",
    "changed": "Texts taken that were not there any more half a minute later",
}


def _requests(metrics: Metrics) -> Iterator[Metric]:
    for name, about in _REQUESTS.items():
        family = CounterMetricFamily(f"copilotd_{name}", about, labels=["language"])
        for language, requests in metrics.requests:
            family.add_metric([language], asdict(requests)[name])
        yield family
    empty = CounterMetricFamily(
        "copilotd_empty", "Requests without a suggestion", labels=["language", "reason"]
    )
    for key, number in metrics.empty:
        empty.add_metric([key.language, key.reason], number)
    yield empty


_TOKENS = {
    "prefilled": "Prompt tokens computed",
    "reused": "Prompt tokens found in the caches",
    "generated": "Tokens written",
    "target_steps": "Steps of the target that gave tokens",
}
_DRAFTED = {
    "proposed": "Tokens drafted",
    "reached": "Drafted tokens that verification came to",
    "accepted": "Drafted tokens that the target would have written",
}


def _tokens(metrics: Metrics) -> Iterator[Metric]:
    for name, about in _TOKENS.items():
        suffix = "" if name == "target_steps" else "_tokens"
        family = CounterMetricFamily(f"copilotd_{name}{suffix}", about, labels=["model", "language"])
        for work, tokens in metrics.tokens:
            family.add_metric([work.model, work.language], asdict(tokens)[name])
        yield family
    for name, about in _DRAFTED.items():
        family = CounterMetricFamily(
            f"copilotd_draft_tokens_{name}", about, labels=["model", "language", "source"]
        )
        for drafts, drafted in metrics.drafts:
            family.add_metric([drafts.model, drafts.language, drafts.source], asdict(drafted)[name])
        yield family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus' buckets hold what the smaller ones do too."""
    bounds = [*(f"{ms / 1e3:g}" for ms in BOUNDS_MS), "+Inf"]
    upto = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip(bounds, histogram.counts, strict=True):
        upto += count
        buckets.append((bound, float(upto)))
    return buckets
