"""Secrets are taken out while facts are collected, so that none reaches a fact, a snapshot or a report."""

from __future__ import annotations

import re

REDACTED = "<redacted>"

# Flag destinations of SGLang whose value is a secret (server_args.py, 0.5.7 to 0.5.23).
SECRET_DESTINATIONS = frozenset({"api_key", "admin_api_key", "ssl_keyfile_password", "watermark_key"})

# What people write for --api-key: a misspelt flag is told as unknown, and its value is still a key.
MISSPELT_KEY = re.compile(r"(?i)--(?:admin[-_]?)?api[-_]?k[a-z]{0,3}\Z")

# Environment variables that a doctor reads. Everything else stays where it is.
ENVIRONMENT_ALLOWED = re.compile(
    r"^(SGLANG_|SGL_|NCCL_|GLOO_|CUDA_|TRITON_|TORCH|FLASHINFER_|NVSHMEM_|HIP_|ROCR_|OMP_NUM_THREADS$"
    r"|HF_HOME$|HF_HUB_CACHE$|HUGGINGFACE_HUB_CACHE$|TRANSFORMERS_CACHE$|MODELSCOPE_CACHE$|XDG_CACHE_HOME$"
    r"|LD_PRELOAD$|LD_LIBRARY_PATH$|PYTHONPATH$|VIRTUAL_ENV$|CONDA_PREFIX$|HOME$|PATH$)"
)
_SECRET_NAME = re.compile(r"(?i)(token|secret|passw|api_?key|credential|private)")
# A number of tokens: SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=128 is a size, no secret.
_COUNTS_TOKENS = re.compile(r"_(?:NUM|MAX)_(?:\w*_)?TOKENS(?:_|\Z)")
_COUNT = re.compile(r"[0-9]{1,9}\Z")

_TEXT_PATTERNS = (
    # --api-key VALUE, --api-key=VALUE, the beginnings of these flags that argparse takes for them, and
    # MISSPELT_KEY: --apikey, --api_key, --api-kye
    re.compile(
        r"(?i)(--(?:(?:admin[-_]?)?api(?:[-_]?k[a-z]{0,3})?|admin(?:-a(?:pi?)?)?|ssl-keyfile-p[a-z]*)[= ]+)"
        r"(\"[^\"]*\"|'[^']*'|\S+)"
    ),
    # api_key='VALUE', 'api_key': 'VALUE', "api_key": "VALUE" (not None)
    re.compile(
        r"(?i)(['\"]?\b(?:admin_)?(?:api_key|ssl_keyfile_password|hf_token)['\"]?\s*[=:]\s*)"
        r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    ),
    # NAME_TOKEN=VALUE, NAME_SECRET_ACCESS_KEY=VALUE in shell text
    re.compile(
        r"\b([A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|CREDENTIALS?)[A-Z0-9_]*=)"
        r"(\"[^\"]*\"|'[^']*'|[^\s\"']+)"
    ),
    # Authorization: Bearer VALUE, "authorization": "Bearer VALUE", X-API-Key: VALUE
    re.compile(r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic)\s+)([^\s\"']+)"),
    re.compile(r"(?i)(\bx-api-key[\"']?\s*:\s*[\"']?)([^\s\"']+)"),
    # scheme://user:password@host
    re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)([^\s@/]+)(?=@)"),
    # https://TOKEN@host (a user alone), ...?token=VALUE&X-Amz-Signature=VALUE
    re.compile(r"(?i)(\bhttps?://)([^\s:/@]+)(?=@)"),
    re.compile(
        r"(?i)([?&](?:[\w.-]*(?:token|secret|signature|credential|passw(?:or)?d|api_?key)|key|sig)=)([^\s&#\"']+)"
    ),
    # tokens recognizable by their own form: Hugging Face, OpenAI style, AWS access keys, GitHub, GitLab,
    # Slack, Google, NVIDIA, JSON web tokens
    re.compile(
        r"()\b(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|AKIA[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{30,}"
        r"|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}|AIza[\w-]{30,}|nvapi-[\w-]{20,}"
        r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"
    ),
)


def text(line: str) -> str:
    """Return ``line`` (of a log, a script, a command) with the secrets in it replaced."""
    for pattern in _TEXT_PATTERNS:
        line = pattern.sub(lambda found: found.group(1) + REDACTED, line)
    return line


def argument(destination: str, value: object) -> object:
    """Return the value of the flag with this destination, replaced when the flag holds a secret."""
    if destination in SECRET_DESTINATIONS:
        return value if value is None else REDACTED
    return text(value) if isinstance(value, str) else value


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables a doctor may know, their secrets replaced."""
    return {
        name: REDACTED if _is_secret(name, value) else text(value)
        for name, value in variables.items()
        if ENVIRONMENT_ALLOWED.match(name)
    }


def _is_secret(name: str, value: str) -> bool:
    if _COUNTS_TOKENS.search(name) and _COUNT.match(value):
        return False
    return bool(_SECRET_NAME.search(name))
