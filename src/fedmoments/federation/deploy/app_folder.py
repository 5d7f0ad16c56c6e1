"""A ready Flower app folder: for us, and for those who use ``flwr run`` themselves.

The app's code is the installed package; the folder only names it. Nothing of a party's data or settings is in it.
"""

from pathlib import Path

import fedmoments
from fedmoments.files import write_whole

__all__ = ["BUNDLE", "write_app"]

#: Publisher and name of our app: all that a party reads of a bundle that arrives.
BUNDLE = "fedmoments/fedmoments-app"

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedmoments-app"
version = "{version}"
description = "One-shot federated learning: clients send moments of features once, a server solves for the classifier."
license = {{ file = "LICENSE" }}
requires-python = ">=3.11"
dependencies = ["fedmoments[flower]", "flwr>=1.41,<1.43"]

[tool.hatch.build.targets.wheel]
packages = ["fedmoments_app"]

[tool.flwr.app]
publisher = "fedmoments"
fab-format-version = 1
flwr-version-target = "1.41.0"

[tool.flwr.app.components]
serverapp = "fedmoments_app.server_app:app"
clientapp = "fedmoments_app.client_app:app"

# Absolute path of the server's settings, on the machine where the ServerApp runs: one of both, to collect or to tune.
# Clients run the app that is installed with them ('fedmoments client'): of this bundle they read the name.
[tool.flwr.app.config]
server-config = ""
tuning-config = ""
"""

_SHIM = '''"""Names the {what} of the installed package."""

from fedmoments.federation.flower.{module} import app

__all__ = ["app"]
'''

_README = """\
# fedmoments as a Flower app

    flwr run . CONNECTION -c "server-config='/path/server.toml'"

`fedmoments server create` makes the ledger that server.toml names, and `fedmoments client` the client.toml of a node.
"""

_LICENSE = "Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0\n"


def write_app(folder: Path) -> Path:
    """Write the app folder, replacing files of the same name in it, and return it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     sorted(path.name for path in write_app(Path(place, "app")).rglob("*.*"))
    ['README.md', '__init__.py', 'client_app.py', 'pyproject.toml', 'server_app.py']
    """
    package = folder / "fedmoments_app"
    package.mkdir(parents=True, exist_ok=True)
    files = {
        folder / "pyproject.toml": _PROJECT.format(version=fedmoments.__version__),
        folder / "LICENSE": _LICENSE,
        folder / "README.md": _README,
        package / "__init__.py": '"""fedmoments as a Flower app."""\n',
        package / "server_app.py": _SHIM.format(what="ServerApp", module="server_app"),
        package / "client_app.py": _SHIM.format(what="ClientApp", module="client_app"),
    }
    for path, text in files.items():
        write_whole(path, text.encode())
    return folder
