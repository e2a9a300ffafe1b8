#!/usr/bin/env bash
# Behaviour: `import lancedb` builds a whole REST client, although only a folder on this disk is
#   opened. 366 methods of lance_namespace_urllib3_client have pydantic's validate_call, which makes
#   each one's validators while the module loads: about half of the time of the import.
# Version: lancedb 0.40.0, lance-namespace 0.13.0, pydantic 2.14.4.
# Source: lancedb/db.py imports lance_namespace at the top, whose package imports the client's whole
#   api package; run below with `python -X importtime`.
# Good guess: the import of an embedded database loads its native library and pyarrow; what talks to
#   a server is imported when a server is named.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet lancedb==0.40.0 lance-namespace==0.13.0 \
    lance-namespace-urllib3-client==0.13.0 pydantic==2.14.4
"$work/env/bin/python" -c "import lancedb"  # writes the byte code
"$work/env/bin/python" - <<'PYTHON'
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import lance_namespace_urllib3_client.api as client

shares = []
for _ in range(3):
    words = [sys.executable, "-X", "importtime", "-c", "import lancedb"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    found = re.findall(r"\|\s+(\d+) \|\s+([\w.]+)$", listed, re.MULTILINE)  # cumulative
    by_name = {name: int(us) for us, name in found}
    whole = by_name["lancedb"]
    shares.append(by_name["lance_namespace_urllib3_client.api"] / whole)
files = Path(client.__file__).parent.glob("*.py")
methods = sum(path.read_text(encoding="utf-8").count("@validate_call") for path in files)
for name in ("lancedb", "lance-namespace", "pydantic"):
    print("version:", name, version(name))
print("behaviour: methods with validate_call:", methods)
print("behaviour: share of the import that the REST client takes:", f"{min(shares):.2f}")
assert methods > 100
assert min(shares) > 0.4
PYTHON
