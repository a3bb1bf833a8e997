"""The NumPy wrapper against the hand-made test bundle.

    python3 python/test_session.py MAKE_BUNDLE STAGE.so MESH
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy  # noqa: E402
import partita  # noqa: E402


def expect_error(text, call):
    try:
        call()
    except partita.PartitaError as error:
        assert text in str(error), f"{text!r} not in {error}"
        return
    raise AssertionError(f"no error, expected one with {text!r}")


def main(make_bundle, stage, mesh):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([make_bundle, stage, mesh, folder], check=True)
        x, mode, y = (numpy.load(f"{folder}/{name}.npy") for name in ("x", "mode", "y"))
        expect_error("cannot open bundle", lambda: partita.Session(folder + "/none"))
        expect_error("transport 'tcp' is unknown",
                     lambda: partita.Session(folder + "/bundle", transport="tcp"))
        with partita.Session(folder + "/bundle") as session:
            assert session.inputs["x"] == (numpy.dtype("float32"), (7, 16))
            assert session.num_ranks == 4
            for _ in range(3):
                result = session.run({"x": x, "mode": mode})["y"]
                numpy.testing.assert_allclose(result, y, rtol=1e-5, atol=1e-5)
            # Any memory order and byte order that NumPy can hold.
            result = session.run({"x": numpy.asfortranarray(x).astype(">f4"),
                                  "mode": mode})["y"]
            numpy.testing.assert_allclose(result, y, rtol=1e-5, atol=1e-5)
            expect_error("input 'x' is float64", lambda: session.run(
                {"x": x.astype("f8"), "mode": mode}))
            expect_error("input 'mode' is missing", lambda: session.run({"x": x}))
            expect_error("there is no input 'z'", lambda: session.run({"z": x}))
        expect_error("the session is closed", lambda: session.run({"x": x}))
        # A rank that hangs is reported, and the process goes on.
        with partita.Session(folder + "/bundle", timeout=0.5) as session:
            hang = numpy.array([1, 3], dtype=numpy.int64)
            expect_error("rank 3, node 'guard' (kernel): no progress",
                         lambda: session.run({"x": x, "mode": hang}))
            expect_error("the session ended with an earlier error",
                         lambda: session.run({"x": x, "mode": mode}))
    print("python wrapper: passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
    # A rank that hangs on purpose still has its thread.
    sys.stdout.flush()
    os._exit(0)
