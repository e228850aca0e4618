"""A running server, asked over HTTP: GET only, and only the endpoints listed here."""

from __future__ import annotations

from typing import Any

import msgspec

from sgdoctor.collect import http_get, metrics, router, server_info
from sgdoctor.collect.http_get import Answer, Target
from sgdoctor.errors import Undecided
from sgdoctor.facts import Facts

SECONDS = 5.0

# In this order: /health makes an idle server generate a token, so what else is asked is asked before.
MODELS, INFO, OLD_INFO, MODEL_INFO, METRICS, HEALTH = (
    "/v1/models", "/server_info", "/get_server_info", "/model_info", "/metrics", "/health",
)  # fmt: skip

# /health says 503 at once while the server starts (or stops), and after 20 s (SGLANG_HEALTH_CHECK_TIMEOUT)
# when its scheduler did not answer (http_server.py's health_generate, 0.5.7 to 0.5.23).
STARTING_SECONDS = 5.0

# Facts that /server_info gives, beside arg.*; the reason why it did not is theirs.
_OF_INFO = ("sglang.version", "kv.tokens", "kv.max_running_requests", "memory.weights_gb", "model.path")


class Reading(msgspec.Struct, frozen=True):
    """What came of asking a server.

    ``usable``: something beside the status was learnt. ``command``: the words of the server's own launch
    command (0.5.20 and newer), secrets replaced. ``problems``: what did not answer as it should, one sentence
    each.
    """

    url: str
    status: str | None
    usable: bool
    command: list[str] | None = None
    problems: tuple[str, ...] = ()


def read_server(facts: Facts, url: str, api_key: str | None = None, timeout: float = SECONDS) -> Reading:
    """Ask the server at ``url`` and set server.*, and what read_server_info and read_metrics set.

    ``timeout`` is for one request; all together take three times as long at most. Raises UsageError for what
    is no URL, and Undecided when something answers that is not an SGLang server.
    """
    where = http_get.target(url, api_key)
    facts.set("server.url", where.url, source="http", place=where.url)
    asked = _Asked(facts, where, timeout)
    models = asked.get(MODELS)
    if models.kind in http_get.NOT_REACHED:
        asked.unreachable(models)
        return asked.reading(usable=False)
    stuck = models.kind == "timeout"
    info = asked.info() if not stuck else None
    if info is not None and info.path == OLD_INFO:
        asked.reject_routers(info)
    model = asked.get(MODEL_INFO) if not stuck else None
    page = asked.get(METRICS) if not stuck else None
    health = asked.get(HEALTH)
    command = asked.judge(models, info, model, page, health)
    return asked.reading(usable=asked.learnt, command=command)


class _Asked:
    """One round of questions to one server."""

    def __init__(self, facts: Facts, where: Target, timeout: float) -> None:
        self.facts = facts
        self.where = where
        self.timeout = timeout
        self.left = 3 * timeout
        self.problems: list[str] = []
        self.status: str | None = None
        self.learnt = False

    def place(self, path: str) -> str:
        return self.where.url + path

    def get(self, path: str) -> Answer:
        if self.left <= 0:
            return Answer(path, "timeout", "not asked: the server had taken too long before")
        answer = http_get.get(self.where, path, min(self.timeout, self.left))
        self.left -= answer.seconds
        return answer

    def info(self) -> Answer:
        answer = self.get(INFO)
        return self.get(OLD_INFO) if answer.status == 404 else answer

    def problem(self, answer: Answer, said: str | None = None) -> None:
        self.problems.append(f"{self.place(answer.path)}: {said or answer.said}")

    def reading(self, *, usable: bool, command: list[str] | None = None) -> Reading:
        self.facts.notes.extend(self.problems)
        return Reading(self.where.url, self.status, usable, command, tuple(self.problems))

    def set_status(self, status: str, answer: Answer) -> None:
        self.status = status
        self.facts.set("server.status", status, source="http", place=self.place(answer.path))

    def set_listens(self, answer: Answer, *, listens: bool) -> None:
        self.facts.set("server.listens", listens, source="http", place=self.place(answer.path))

    def unreachable(self, answer: Answer) -> None:
        self.problem(answer)
        self.set_status("unreachable", answer)
        if answer.kind in ("refused", "tls"):
            self.set_listens(answer, listens=answer.kind == "tls")
        self.facts.set("server.health", None, source="http", place=self.place(HEALTH))
        self.lack_info(f"{self.place(answer.path)}: {answer.said}")

    def lack_info(self, reason: str) -> None:
        names = [name for name in self.facts.vocabulary.specs if name.startswith("arg.")]
        for name in (*names, *_OF_INFO):
            self.facts.set_unknown(name, reason)

    def judge(
        self,
        models: Answer,
        info: Answer | None,
        model: Answer | None,
        page: Answer | None,
        health: Answer,
    ) -> list[str] | None:
        """Set the facts of all answers, after making sure that they are an SGLang server's."""
        said_models, said_info, said_model = (self.json(a) for a in (models, info, model))
        self.reject_others(models, said_models, said_model, page)
        command = self.read_info(info, said_info)
        self.read_models(models, said_models)
        self.read_model_info(model, said_model)
        self.read_metrics(page)
        if not self.learnt:
            self.reject_strangers(models, health)
        self.read_health(models, info, health)
        return command

    def json(self, answer: Answer | None) -> Any:
        if answer is None or not answer.ok:
            return None
        try:
            return msgspec.json.decode(answer.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    # --- whose server it is --------------------------------------------------------------------------------

    def reject_others(self, models: Answer, said: Any, model: Any, page: Answer | None) -> None:
        """Raise Undecided when another engine says its name."""
        owner = next((c.get("owned_by") for c in _cards(said) if isinstance(c.get("owned_by"), str)), None)
        if owner is not None and owner != "sglang":
            raise Undecided(
                f"{self.place(models.path)}: not an SGLang server: its models are owned by {owner}"
            )
        if page is not None and page.ok and metrics.is_vllm(_text(page)):
            raise Undecided(f"{self.place(page.path)}: not an SGLang server: the metrics are vLLM's")
        if isinstance(model, dict) and model.get("model_type") == "diffusion":
            raise Undecided(
                f"{self.place(MODEL_INFO)}: an SGLang server of a diffusion model; no rule is about it"
            )

    def reject_routers(self, info: Answer) -> None:
        """Raise Undecided when this is a router, which hands on what one server or another says."""
        servers = router.behind(self.json(info), lambda path: self.json(self.get(path)))
        if servers is not None:
            raise Undecided(router.message(self.where.url, servers))

    def reject_strangers(self, models: Answer, health: Answer) -> None:
        """Raise Undecided when nothing was said that only SGLang says, and it is not just a refusal."""
        if models.kind not in ("answered", "redirect") or models.status in (401, 403):
            return
        if models.status is not None and models.status >= 500:
            return
        by = f" ({models.server})" if models.server else ""
        if models.kind == "redirect":
            raise Undecided(f"{self.place(models.path)}{by}: {models.said}: name the server's own URL")
        node = ""
        if health.status in (200, 503) and models.status == 404:
            node = "; a node of a deployment other than its first one answers /health alone"
        what = "an answer that is not SGLang's" if models.status == 200 else models.said
        raise Undecided(f"{self.where.url}: not an SGLang server{by}: {models.path} gave {what}{node}")

    # --- what it says --------------------------------------------------------------------------------------

    def read_info(self, answer: Answer | None, said: Any) -> list[str] | None:
        if answer is None:
            self.lack_info(f"{self.place(INFO)}: not asked, as {MODELS} did not answer")
            return None
        reason = answer.said if not answer.ok else "an answer that is no JSON" if said is None else None
        reason = reason or server_info.objection(said)
        if answer.status in (401, 403):
            key = "needs the API key" if self.where.api_key is None else "does not accept the API key"
            reason = f"{key} ({answer.said})"
        if reason is not None:
            self.problem(answer, reason)
            self.lack_info(f"{self.place(answer.path)}: {reason}")
            return None
        self.learnt = True
        return server_info.read_server_info(self.facts, said, self.place(answer.path))

    def read_models(self, answer: Answer, said: Any) -> None:
        cards = _cards(said)
        if not cards:
            if answer.status not in (401, 403):
                self.problem(answer, answer.said if not answer.ok else "an answer that is no list of models")
            return
        self.learnt = True
        card, place = cards[0], self.place(answer.path)
        name = card.get("id")
        if isinstance(name, str) and name and not self.facts.known("model.name"):
            self.facts.set("model.name", server_info.short_name(name), source="http", place=place)
        length = card.get("max_model_len")
        if isinstance(length, int) and not isinstance(length, bool):
            self.facts.set("kv.context_length", length, source="http", place=place)

    def read_model_info(self, answer: Answer | None, said: Any) -> None:
        if answer is None or answer.status in (401, 403, 404):
            return
        if not isinstance(said, dict) or not isinstance(said.get("model_path"), str):
            self.problem(answer, answer.said if not answer.ok else "an answer that describes no model")
            return
        self.learnt = True
        place = self.place(answer.path)
        self.facts.set("model.path", said["model_path"], source="http", place=place)
        architectures = said.get("architectures")
        if isinstance(architectures, list) and architectures and isinstance(architectures[0], str):
            self.facts.set("model.architecture", architectures[0], source="http", place=place)

    def read_metrics(self, answer: Answer | None) -> None:
        """Read the metrics page; one that is not there (404) was not switched on."""
        if answer is None or answer.status == 404:
            return
        if not answer.ok or not metrics.is_sglang(_text(answer)):
            self.problem(answer, answer.said if not answer.ok else "an answer without SGLang's metrics")
            return
        self.learnt = True
        metrics.read_metrics(self.facts, _text(answer), self.place(answer.path))

    def read_health(self, models: Answer, info: Answer | None, health: Answer) -> None:
        self.facts.set("server.health", health.status, source="http", place=self.place(HEALTH))
        self.read_access(models)
        if models.status == 404 and info is not None and info.status == 404:
            # launch_dummy_health_check_server in srt/utils/common.py, 0.5.7 to 0.5.23
            self.facts.set_unknown(
                "server.status",
                f"{self.place(MODELS)}: HTTP 404, as of a further node, whose /health is always 200",
            )
            return
        status, by = self.judge_status(models, health)
        if status is not None:
            self.set_status(status, by)
            if status == "unreachable":
                self.set_listens(by, listens=True)
            return
        said = health.said
        if health.kind == "timeout":
            said += "; SGLang waits up to 20 s for its scheduler there: --watch 30 gives it the time"
        self.problem(health, said)
        self.facts.set_unknown("server.status", f"{self.place(HEALTH)}: {said}")

    def read_access(self, models: Answer) -> None:
        place = self.place(models.path)
        if models.status in (401, 403):
            self.facts.set("server.api_open", False, source="http", place=place)
        elif models.ok and self.where.api_key is None and self.where.user is None:
            self.facts.set("server.api_open", True, source="http", place=place)
        elif models.ok:
            self.facts.set_unknown("server.api_open", f"{place} was asked with the key")

    def judge_status(self, models: Answer, health: Answer) -> tuple[str | None, Answer]:
        """Return what the answers say about the server, and the one that says it."""
        if models.kind == "timeout" and health.status is None:
            return "unreachable", models
        if models.status in (502, 503, 504) and not self.learnt:
            return "unreachable", models  # what a proxy says when nothing is behind it
        if health.status == 503:
            return "starting" if health.seconds < STARTING_SECONDS else "unhealthy", health
        if models.status in (401, 403):
            return "unauthorized", models
        for answer in (health, models):
            if answer.status is not None and answer.status >= 500:
                return "unhealthy", answer
        return ("ready" if health.status == 200 else None), health


def _text(answer: Answer) -> str:
    return answer.body.decode(errors="replace")


def _cards(said: Any) -> list[dict[str, Any]]:
    cards = said.get("data") if isinstance(said, dict) else None
    return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
