"""States that a run has saved."""
import json

import numpy as np

TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64,
         "I32": np.int32, "U8": np.uint8, "BOOL": np.bool_}


def read_states(path):
    """The tensors of a safetensors file by name, without those that fill gaps, and its
    metadata."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    return {name: np.frombuffer(data[slice(*it["data_offsets"])],
                                TYPES[it["dtype"]]).reshape(it["shape"])
            for name, it in header.items() if not name.startswith("__")}, metadata
