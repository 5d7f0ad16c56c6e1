"""Numbers for a monitor, in Prometheus' text format, and the small server that a client or a helper shows them on."""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["metrics_text", "own_metrics"]

Value = float | int | bool
#: Name -> its kind, and its value: one, or one for each value of a label.
Metrics = Mapping[str, tuple[str, Value | Mapping[tuple[str, str], Value]]]


def metrics_text(metrics: Metrics) -> str:
    r"""Return numbers in Prometheus' text format.

    Examples
    --------
    >>> print(metrics_text({"parties": ("gauge", {("state", 'a"b'): 2}), "up": ("gauge", True)}), end="")
    # TYPE parties gauge
    parties{state="a\"b"} 2
    # TYPE up gauge
    up 1
    """
    lines = []
    for name, (kind, value) in metrics.items():
        lines.append(f"# TYPE {name} {kind}")
        if isinstance(value, Mapping):
            lines += [f'{name}{{{label}="{_escaped(text)}"}} {_number(n)}' for (label, text), n in value.items()]
        else:
            lines.append(f"{name} {_number(value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool | int) else repr(float(value))


def own_metrics(facts: Callable[[], tuple[Metrics, str]]) -> Any:
    """Return the application that shows a party's own numbers to its machine: ``/metrics`` and ``/health``.

    Parameters
    ----------
    facts
        Returns the numbers, and what is wrong ("" if nothing is).
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    from fedmoments.federation.deploy.gate import Gate

    def metrics(_: Request) -> Response:
        return PlainTextResponse(metrics_text(facts()[0]), media_type="text/plain; version=0.0.4")

    def health(_: Request) -> Response:
        problem = facts()[1]
        return JSONResponse({"status": "failed" if problem else "ready", "problem": problem}, 503 if problem else 200)

    routes = [Route("/metrics", metrics), Route("/health", health)]
    return Starlette(routes=routes, middleware=[Middleware(Gate, token="")])  # this machine has no token
