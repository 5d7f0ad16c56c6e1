"""``fedmoments serve``: a fitted head, with its encoder, behind HTTP."""

import json as json_module
import socket
import sys
from pathlib import Path
from typing import Annotated

from fedmoments.cli.classifiers import loading
from fedmoments.cli.generate import command, positional
from fedmoments.cli.given import Taken
from fedmoments.cli.options import Json
from fedmoments.cli.output import print_line
from fedmoments.cli.places import existing_file
from fedmoments.errors import InputError
from fedmoments.settings.samples import Running
from fedmoments.settings.serving import AnswerSettings, ServingSettings

__all__ = ["serve"]

EXAMPLE = "\b\nExample, after 'fedmoments demo':\n  fedmoments serve runs/demo/heads/fedcof.safetensors --port 8080"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@command("serve", EXAMPLE)
def serve(
    model: Annotated[Path, positional(help="Classifier that 'simulate', 'fit', 'tune' or another command wrote.")],
    *,
    settings: Annotated[ServingSettings, Taken(file=True)],
    answering: Annotated[AnswerSettings, Taken()],
    running: Annotated[Running, Taken(only=("runtime", "device", "threads", "trust"))],
    json: Json = False,
) -> None:
    """Answer requests over HTTP: POST /predict; GET /model, /health, /metrics.

    Replace the model file to serve a new model without a restart.
    """
    from fedmoments.extras import require

    require("uvicorn", "Serving a model", "serve")
    require("python_multipart", "Serving a model", "serve", "python-multipart")
    require("starlette", "Serving a model", "serve")
    from fedmoments.handover.answers import Asked
    from fedmoments.handover.model import Model
    from fedmoments.handover.serving.app import Limits, application
    from fedmoments.handover.serving.patience import patient_server
    from fedmoments.handover.serving.served import Served

    _require_safe(settings)
    options = loading(running)
    asked = Asked(**answering.shares())
    served = Served(existing_file(model), lambda file, before: Model.read(file, before=before, **options), asked)
    limits = Limits(
        settings.max_request_bytes,
        settings.max_samples,
        settings.max_waiting,
        settings.max_pixels,
        settings.max_characters,
    )
    listening = _listening(settings)
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.certificate else "http"
    address = f"{scheme}://{host}:{port}"
    if json:
        print_line(json_module.dumps({"address": address, "takes": served.model.takes}))
    else:
        print_line(f"serving {model} on {address}: POST /predict takes {served.model.takes}; stop with Ctrl-C")
    sys.stdout.flush()
    patient = patient_server(
        application(served, limits, settings.max_batch), ssl_certfile=settings.certificate, ssl_keyfile=settings.key
    )
    patient.run(sockets=[listening])


def _require_safe(settings: ServingSettings) -> None:
    if settings.key and not settings.certificate:
        raise InputError("--key is the key of a certificate: give --certificate, too")
    if settings.certificate and not settings.key:
        raise InputError("--certificate needs its private key: give --key, too")
    for file in filter(None, (settings.certificate, settings.key)):
        existing_file(Path(file))
    if settings.host not in LOOPBACK and not settings.certificate:
        raise InputError(
            f"listening on {settings.host} lets other machines send samples in the clear: give --certificate and "
            "--key, or listen on 127.0.0.1 behind a proxy that does TLS"
        )


def _listening(settings: ServingSettings) -> socket.socket:
    if settings.port > 65535:
        raise InputError(f"a port is at most 65535, not {settings.port}")
    try:
        return socket.create_server(
            (settings.host, settings.port), family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        )
    except OSError as error:
        raise InputError(f"cannot listen on {settings.host}, port {settings.port}: {error}") from error
