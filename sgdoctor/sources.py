"""What a command was told to look at."""

from __future__ import annotations

import msgspec


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The sources an operator named; with none named, this machine is looked at."""

    url: str | None = None
    urls: tuple[str, ...] = ()  # of several servers, instead of ``url``
    api_key: str | None = None
    logs: tuple[str, ...] = ()  # files, or "-" for standard input; one a node
    launch: str | None = None  # a launch script
    command: tuple[str, ...] = ()  # the launch command itself
    model: str | None = None  # folder or config.json
    python: str | None = None  # another Python environment or interpreter
    environment: str | None = None  # what another machine has: a snapshot or packages and GPUs
    server_info: str | None = None
    metrics: str | None = None
    watch: float | None = None  # seconds for which the server is watched
    gpu: str | None = None  # NAME[:COUNT]
    assume: tuple[str, ...] = ()  # NAME=VALUE
    sample: str | None = None
    snapshot: str | None = None
    deep: bool = False
    inherits: bool = False  # this process becomes the command, which gets its environment and this machine

    def named(self) -> list[str]:
        """Return the options that name a source, as an operator writes them."""
        given = {
            "--url": self.url or self.urls,
            "--log": self.logs,
            "--launch": self.launch,
            "--": self.command,
            "--model": self.model,
            "--python": self.python,
            "--environment": self.environment,
            "--server-info": self.server_info,
            "--metrics": self.metrics,
            "--watch": self.watch,
            "--gpu": self.gpu,
            "--assume": self.assume,
            "--sample": self.sample,
            "--snapshot": self.snapshot,
        }
        return [option for option, value in given.items() if value]

    def files(self) -> list[tuple[str, str]]:
        """Return the files that are named, each behind its option."""
        given = [("--log", name) for name in self.logs if name != "-"]
        given += [
            (option, name)
            for option, name in (
                ("--launch", self.launch),
                ("--model", self.model),
                ("--environment", self.environment),
                ("--server-info", self.server_info),
                ("--metrics", self.metrics),
                ("--snapshot", self.snapshot),
            )
            if name is not None
        ]
        return given
