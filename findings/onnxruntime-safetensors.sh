#!/usr/bin/env bash
# Behaviour: ONNX Runtime reads weights straight out of a safetensors file. The graph is a few
#   hundred bytes and names file, first byte and length of each tensor as external data; a session
#   made from bytes takes the folder from an option, so that the graph need not lie beside it.
#   Tensors begin wherever the JSON header ends: no alignment is needed. Gemm takes a matrix as
#   PyTorch saves it, (outputs, inputs), with transB=1, so nothing is transposed or copied.
# Version: onnxruntime 1.31.1, onnx 1.23.2, safetensors 0.8.0.
# Source: session option session.model_external_initializers_file_folder_path
#   (onnxruntime_session_options_config_keys.h); safetensors format in its README; run below.
# Good guess: external data must be a file of raw tensors beside the model, aligned to pages, so
#   that a model without PyTorch needs a converted copy of its weights.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet onnxruntime==1.31.1 onnx==1.23.2 safetensors==0.8.0
"$work/env/bin/python" - "$work" <<'PYTHON'
import json, struct, sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from safetensors.numpy import save_file

weights = Path(sys.argv[1]) / "elsewhere" / "model.safetensors"
weights.parent.mkdir()
rng = np.random.default_rng(0)
tensors = {
    "odd": rng.normal(size=(3,)).astype(np.float32),
    "w": rng.normal(size=(5, 7)).astype(np.float32),
}
save_file(tensors, weights)
with weights.open("rb") as handle:
    (size,) = struct.unpack("<Q", handle.read(8))
    start, end = json.loads(handle.read(size))["w"]["data_offsets"]
begin = 8 + size + start
tensor = TensorProto(
    name="w", dims=(5, 7), data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
)
for key, value in ("location", weights.name), ("offset", begin), ("length", end - start):
    tensor.external_data.add(key=key, value=str(value))
graph = helper.make_graph(
    [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
    "g",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 7])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
    [tensor],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
options = onnxruntime.SessionOptions()
key = "session.model_external_initializers_file_folder_path"
options.add_session_config_entry(key, str(weights.parent))
session = onnxruntime.InferenceSession(
    model.SerializeToString(), options, providers=["CPUExecutionProvider"]
)
x = rng.normal(size=(1, 7)).astype(np.float32)
(y,) = session.run(None, {"x": x})
for name in ("onnxruntime", "onnx", "safetensors"):
    print("version:", name, version(name))
print("graph:", len(model.SerializeToString()), "bytes; tensor begins at byte", begin)
print("behaviour: equal to numpy:", bool(np.allclose(y, x @ tensors["w"].T, atol=1e-6)))
assert np.allclose(y, x @ tensors["w"].T, atol=1e-6)
assert begin % 4096 != 0
PYTHON
