"""The demo sets the number of BLAS threads, which numpy reads when it is imported: nothing may import numpy before."""

import subprocess
import sys


def test_the_demo_is_imported_without_numpy() -> None:
    code = "import sys, fedmoments.cli.demo; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
