"""Who is told before a job is stopped, and whether it is ready at once."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from typing import Any

from trencadis.adapters.live.config import Hook


class HookError(Exception):
    """The hook could not be told."""


def tell(hook: Hook, content: dict[str, Any]) -> bool:
    """Tells the hook; whether it acknowledges at once. Raises HookError."""
    text = json.dumps(content, default=str)
    answers = []
    if hook.command:
        answers.append(_command(hook, text))
    if hook.webhook:
        answers.append(_webhook(hook, text))
    return any(_acknowledged(answer) for answer in answers)


def _command(hook: Hook, text: str) -> str:
    try:
        done = subprocess.run(
            hook.command,
            input=text,
            capture_output=True,
            text=True,
            timeout=hook.timeout_seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HookError(f"the command before a preemption failed: {error}") from None
    if done.returncode:
        raise HookError(f"the command before a preemption ended with {done.returncode}")
    return done.stdout


def _webhook(hook: Hook, text: str) -> str:
    if not str(hook.webhook).startswith(("http://", "https://")):
        raise HookError(f"the webhook {hook.webhook} is neither http nor https")
    request = urllib.request.Request(
        str(hook.webhook), text.encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=hook.timeout_seconds) as answer:
            return str(answer.read(65_536).decode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        raise HookError(f"the webhook before a preemption failed: {error}") from None


def _acknowledged(answer: str) -> bool:
    try:
        content = json.loads(answer)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("ack") is True
