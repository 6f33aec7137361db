# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of strings: ops against onnxruntime, in and out of Python and of the command, and bad input."""
import ctypes
import json
import os
import subprocess
import sys

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402
import lathe.onnxruntime  # noqa: E402

WORDS = ["", "a", "ab", "a b", " Ä ö\t ß", "über-alles--x", "日本 語", "the", "The", "x" * 300, "𝄞", "-", "--", "a-b-c-d"]
pytestmark = pytest.mark.skipif(lathe_cli.DEVICE != "cpu", reason="strings are on CPUs")


def model(folder, signature, *lines, ml=4):
    text = f'<ir_version: 10, opset_import: ["" : 22, "ai.onnx.ml" : {ml}]>\ng {signature} {{' + "\n".join(lines) + "}"
    path = str(folder / "model.onnx")
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def engine_of(path, **options):
    return lathe.compile(path, target="x86-64-v3", **options)


def against_onnxruntime(path, feed, skip=()):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    want = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed)))
    got = {name: value.numpy() for name, value in engine_of(path).run(feed).items()}
    for name, value in want.items():
        if name in skip:
            continue
        assert got[name].dtype == value.dtype, name
        np.testing.assert_array_equal(got[name], value, err_msg=name)
    return got


def words(*shape, seed=0):
    return np.random.default_rng(seed).choice(np.array(WORDS, object), shape)


def test_what_moves_strings(tmp_path):
    path = model(tmp_path, "(string[N, 4] x, int64[K] i, string[1] t, string one) => (string[A, B] y, bool[N, 4] e, "
                 "string[C] z, string[F, G] w)",
                 "g = Gather<axis = 0>(x, i)", "tt = Transpose<perm = [1, 0]>(g)", "y = Tile(tt, two)",
                 "e = Equal(x, t)", "f = Reshape(x, flat)", "z = Concat<axis = 0>(f, t)",
                 "w = Where(e, one, x)")
    proto = onnx.load(path)
    for name, values in (("two", [2, 1]), ("flat", [-1])):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(values, np.int64), name))
    onnx.save(proto, path)
    for n in (1, 5):
        x, i = words(n, 4, seed=n), np.array([0, n - 1, 0], np.int64)
        got = against_onnxruntime(path, {"x": x, "i": i, "t": np.array(["a"], object), "one": np.array("𝄞", object)}, skip=["y"])
        # onnxruntime repeats no strings: it leaves "" behind the first.
        np.testing.assert_array_equal(got["y"], np.tile(x[i].T, (2, 1)))


def test_pad(tmp_path):
    """onnxruntime has no Pad of strings."""
    path = model(tmp_path, "(string[N] x, string v) => (string[A] y, string[B] z)", "p = Constant<value = int64[2] {1, 2}>()",
                 "y = Pad(x, p)", "z = Pad(x, p, v)")
    got = engine_of(path).run({"x": ["a", "b"], "v": "ä"})
    assert got["y"].numpy().tolist() == ["", "a", "b", "", ""]
    assert got["z"].numpy().tolist() == ["ä", "a", "b", "ä", "ä"]


def test_concat_broadcasts(tmp_path):
    path = model(tmp_path, "(string[N, 1] x, string[M] y) => (string[N, M] z)", "z = StringConcat(x, y)")
    against_onnxruntime(path, {"x": words(3, 1), "y": words(5, seed=1)})
    against_onnxruntime(path, {"x": words(0, 1), "y": words(5)})


@pytest.mark.parametrize("attributes", ["", 'delimiter = "-"', 'delimiter = "--"', 'maxsplit = 1',
                                        'delimiter = "-", maxsplit = 2', 'delimiter = ""'])
def test_split(tmp_path, attributes):
    """As Python's str.split(); onnxruntime counts the parts of "" otherwise, and splits no string of spaces."""
    path = model(tmp_path, "(string[A, B] x) => (string[A, B, C] y, int64[A, B] n)", f"y, n = StringSplit{attributes and f'<{attributes}>'}(x)")
    x = words(6, 7, seed=3)
    given = dict(pair.split(" = ") for pair in attributes.split(", ") if pair)
    delimiter = given.get("delimiter", '""').strip('"') or None
    parts = [[one.split(delimiter, int(given.get("maxsplit", -1))) for one in row] for row in x]
    got = {name: value.numpy() for name, value in engine_of(path).run({"x": x}).items()}
    longest = max(len(p) for row in parts for p in row)
    assert got["y"].tolist() == [[p + [""] * (longest - len(p)) for p in row] for row in parts]
    assert got["n"].tolist() == [[len(p) for p in row] for row in parts]


@pytest.mark.parametrize("change, sensitive, stopwords", [("LOWER", 0, []), ("UPPER", 0, ["the", "A"]), ("NONE", 1, ["the", "a"]),
                                                          ("NONE", 0, ["ÜBER-alles--X"]), ("LOWER", 1, WORDS)])
@pytest.mark.parametrize("rank", [1, 2])
def test_normalizer(tmp_path, change, sensitive, stopwords, rank):
    """onnxruntime wants the machine to have the locale en_US.UTF-8; lathe wants none."""
    given = ", stopwords = [" + ", ".join(f'"{w}"' for w in stopwords if w.isprintable()) + "]" if stopwords else ""
    sizes = ["N"] if rank == 1 else ["1", "N"]
    path = model(tmp_path, f"(string[{', '.join(sizes)}] x) => (string[{', '.join(sizes[:-1] + ['M'])}] y)",
                 f'y = StringNormalizer<case_change_action = "{change}", is_case_sensitive = {sensitive}{given}>(x)')
    x = [w for w in WORDS if "ß" not in w]  # whose capitals are two letters
    key = (lambda w: w) if sensitive else str.lower
    stop = {key(w) for w in stopwords if w.isprintable()}
    case = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[change]
    want = [case(w) for w in x if key(w) not in stop] or [""]
    got = engine_of(path).run({"x": x if rank == 1 else [x]})["y"].numpy()
    assert got.tolist() == (want if rank == 1 else [want])


def test_regex(tmp_path):
    path = model(tmp_path, "(string[A, B] x) => (bool[A, B] y)", 'y = RegexFullMatch<pattern = "[a-z]*[-ö ].*">(x)')
    against_onnxruntime(path, {"x": words(4, 9, seed=5)})


def test_labels(tmp_path):
    path = model(tmp_path, "(string[N] x, int64[N] i) => (int64[N] a, float[N] b, string[N] c, string[N] d, int64[N] m)",
                 'a = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "über-alles--x", ""], values_int64s = [3, 1, 4]>(x)',
                 'b = ai.onnx.ml.LabelEncoder<keys_strings = ["a"], values_floats = [0.5], default_float = 2.5>(x)',
                 'c = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "𝄞"], values_strings = ["b", "c"], default_string = "?">(x)',
                 'd = ai.onnx.ml.LabelEncoder<keys_int64s = [1, 2], values_strings = ["one", "two"], default_string = "many">(i)',
                 'm = ai.onnx.ml.CategoryMapper<cats_strings = ["the", "a"], cats_int64s = [5, 6], default_int64 = 9>(x)')
    against_onnxruntime(path, {"x": words(9), "i": np.arange(9, dtype=np.int64)})

    # The version before: a string and its place.
    path = model(tmp_path, "(string[N] x, int64[N] i) => (int64[N] a, string[N] b)",
                 'a = ai.onnx.ml.LabelEncoder<classes_strings = ["a", "über-alles--x", ""]>(x)',
                 'b = ai.onnx.ml.LabelEncoder<classes_strings = ["a", "über-alles--x", ""], default_string = "?">(i)', ml=1)
    against_onnxruntime(path, {"x": words(9), "i": np.arange(-3, 6, dtype=np.int64)})


@pytest.mark.parametrize("sorts", [0, 1])
def test_unique(tmp_path, sorts):
    path = model(tmp_path, "(string[N] x) => (string[M] y, int64[M] i, int64[N] j, int64[M] c)", f"y, i, j, c = Unique<sorted = {sorts}>(x)")
    x = words(30, seed=7)
    got = {name: value.numpy() for name, value in engine_of(path).run({"x": x}).items()}
    texts, first, inverse, counts = np.unique(x.astype(str), return_index=True, return_inverse=True, return_counts=True)
    order = np.arange(len(first)) if sorts else np.argsort(first)
    np.testing.assert_array_equal(got["y"], texts[order])
    np.testing.assert_array_equal(got["i"], first[order])
    np.testing.assert_array_equal(got["j"], np.argsort(order)[inverse])
    np.testing.assert_array_equal(got["c"], counts[order])


def test_unique_rows(tmp_path):
    """Rows of strings in the order of code points, which is not that of UTF-16: U+1D11E is behind U+FF01."""
    path = model(tmp_path, "(string[N, 2] x) => (string[M, 2] y, int64[M] i, int64[N] j, int64[M] c)", "y, i, j, c = Unique<axis = 0>(x)")
    x = np.random.default_rng(1).choice(np.array(["\U0001d11e", "\uff01", "z", ""], object), (12, 2))
    got = {name: value.numpy() for name, value in engine_of(path).run({"x": x}).items()}
    rows = sorted(set(map(tuple, x)))
    assert [tuple(row) for row in got["y"]] == rows
    assert [tuple(x[i]) for i in got["i"]] == rows
    assert [rows[j] for j in got["j"]] == [tuple(row) for row in x]
    assert got["c"].tolist() == [sum(tuple(row) == other for row in x) for other in rows]


def test_classes(tmp_path):
    """Labels and categories that are strings."""
    path = model(tmp_path, "(string[N] x, float[N, 2] f) => (float[N, 3] a, string[N] b, float[N, 3] bs, string[N] c, float[N, 2] cs)",
                 'a = ai.onnx.ml.OneHotEncoder<cats_strings = ["a", "über-alles--x", ""]>(x)',
                 'b, bs = ai.onnx.ml.LinearClassifier<coefficients = [0.5, -1.0, 1.0, 0.25, -0.75, 1.5], intercepts = [0.0, 0.5, -0.5], '
                 'classlabels_strings = ["ß", "", "x"]>(f)',
                 'c, cs = ai.onnx.ml.LinearClassifier<coefficients = [0.5, -1.0], intercepts = [0.1], classlabels_strings = ["no", "yes"], '
                 'post_transform = "LOGISTIC">(f)', ml=1)
    f = np.random.default_rng(3).normal(size=(9, 2)).astype(np.float32)
    got = against_onnxruntime(path, {"x": words(9), "f": f}, skip=["bs", "cs"])
    assert len(set(got["b"])) == 3 and len(set(got["c"])) == 2


def test_casts(tmp_path):
    path = model(tmp_path, "(string[N] x, float[M] f, double[M] d, int64[M] i, bool[M] b) => (float[N] a, double[N] c, "
                 "string[M] fs, string[M] ds, string[M] ints, string[M] bs)",
                 "a = Cast<to = 1>(x)", "c = Cast<to = 11>(x)", "fs = Cast<to = 8>(f)", "ds = Cast<to = 8>(d)",
                 "ints = Cast<to = 8>(i)", "bs = Cast<to = 8>(b)")
    f = np.array([0.1, -2.5e-8, np.inf, -np.inf, np.nan, 3], np.float32)
    d = f.astype(np.float64) / 3
    got = against_onnxruntime(path, {"x": np.array(["1.5", "-3", "1e-3", "INF", "NaN"], object), "f": f, "d": d,
                                     "i": np.array([0, -1, 2**63 - 1, -2**63, 5, 6]), "b": f > 0}, skip=["ds"])
    # onnxruntime writes 8 digits of these too.
    np.testing.assert_array_equal(np.array([float(text) for text in got["ds"]]), d)


def test_grams(tmp_path):
    path = model(tmp_path, "(string[N] x) => (float[4] y)", 'y = TfIdfVectorizer<max_gram_length = 2, max_skip_count = 1, '
                 'min_gram_length = 1, mode = "TF", ngram_counts = [0, 2], ngram_indexes = [0, 1, 2, 3], '
                 'pool_strings = ["a", "", "a", "b", "", "a"]>(x)')
    against_onnxruntime(path, {"x": np.array(["a", "b", "", "a", "c", "b"], object)})


def test_branches_and_loops(tmp_path):
    path = model(tmp_path, "(string[N] x, bool c, int64 n) => (string[N] y, string[N] z)",
                 "y = If(c) <then_branch = t () => (string[N] a) { a = StringConcat(x, x) }, "
                 "else_branch = e () => (string[N] b) { b = Identity(x) }>",
                 "t = Constant<value = bool {1}>()",
                 "z = Loop(n, t, x) <body = l (int64 k, bool go, string[N] s) => (bool stay, string[N] r) "
                 "{ stay = Identity(go) r = StringConcat(s, x) }>")
    engine, x = engine_of(path), words(4)
    for c in (True, False):
        got = engine.run({"x": x, "c": np.array(c), "n": np.array(3)})
        assert got["y"].numpy().tolist() == ([w + w for w in x] if c else x.tolist())
        assert got["z"].numpy().tolist() == [w * 4 for w in x]


def test_forms_of_input(tmp_path):
    path = model(tmp_path, "(string[N] x) => (string[N] y)", "y = Identity(x)")
    context = engine_of(path).context("cpu", threads=1)
    for form in (["a", "ä"], np.array(["a", "ä"]), np.array(["a", "ä"], object), np.array(["a", "ä"])[::-1][::-1],
                 np.array(["a".encode(), "ä".encode()]), context.run({"x": ["a", "ä"]})["y"]):
        y = context.run({"x": form})["y"]
        assert (y.dtype, y.shape, y.numpy().tolist()) == ("string", (2,), ["a", "ä"])
    assert context.run({"x": []})["y"].numpy().shape == (0,)
    steps = [context.submit({"x": [str(i), "same"]}) for i in range(3)]
    assert [s.wait()["y"].numpy().tolist() for s in steps] == [[str(i), "same"] for i in range(3)]
    session = lathe.onnxruntime.InferenceSession(path)
    assert session.get_inputs()[0].type == "tensor(string)"
    assert session.run(None, {"x": np.array(["b", ""])})[0].tolist() == ["b", ""]


@pytest.mark.parametrize("value, message", [
    (np.zeros(2, np.int64), "arrays of int64 are not taken; string is asked for"),
    ([b"\xff"], "string 0 is no UTF-8"), (["\ud800"], "a string is no UTF-8"), ([1], "it holds int, not str")])
def test_bad_input(tmp_path, value, message):
    path = model(tmp_path, "(string[N] x) => (string[N] y)", "y = StringConcat(x, x)")
    with pytest.raises(lathe.Error, match=message) as raised:
        engine_of(path).run({"x": value})
    assert raised.value.code == lathe.Code.USAGE and "input 'x'" in str(raised.value)


def test_errors_name_the_node(tmp_path):
    path = model(tmp_path, "(string[N] x) => (bool[N] y)", '[bad] y = RegexFullMatch<pattern = "a(">(x)')
    with pytest.raises(lathe.Error, match="no regular expression of RE2: missing \\)") as raised:
        engine_of(path).run({"x": ["a"]})
    assert (raised.value.code, raised.value.node) == (lathe.Code.INVALID, "bad")
    path = model(tmp_path, "(string[N] x) => (int64[N] y)", "[parse] y = Cast<to = 7>(x)")
    with pytest.raises(lathe.Error, match="'ten' is no i64") as raised:
        engine_of(path).run({"x": ["10", "ten"]})
    assert (raised.value.code, raised.value.node) == (lathe.Code.RUNTIME_FAILURE, "parse")


@pytest.mark.parametrize("node", [onnx.helper.make_node("StringConcat", ["x", "c"], ["y"], "bad"),
                                  onnx.helper.make_node("StringSplit", ["x"], ["y", "n"], "bad", delimiter=b"\xa4"),
                                  onnx.helper.make_node("RegexFullMatch", ["x"], ["y"], "bad", pattern=b"\xff"),
                                  onnx.helper.make_node("StringNormalizer", ["x"], ["y"], "bad", stopwords=[b"\xff"])])
def test_texts_of_a_model_are_utf8(tmp_path, node):
    kind = onnx.TensorProto.BOOL if node.op_type == "RegexFullMatch" else onnx.TensorProto.STRING
    graph = onnx.helper.make_graph(
        [node], "g", [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.STRING, ["N"])],
        [onnx.helper.make_tensor_value_info("y", kind, None)],
        [onnx.helper.make_tensor("c", onnx.TensorProto.STRING, [1], [b"\xff"])] if "c" in node.input else [])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10), tmp_path / "m.onnx")
    with pytest.raises(lathe.Error, match="invalid attribute: a string is no UTF-8"):
        engine_of(str(tmp_path / "m.onnx"))


def test_memory_of_the_caller(tmp_path):
    """lathe.h: results in memory that is given, and how many bytes they take."""
    path = model(tmp_path, "(string[N] x) => (string[N] y)", "y = StringConcat(x, x)")
    context = engine_of(path).context("cpu", threads=1)
    from lathe import _abi, _strings
    given, _alive = _strings.pack(["ab", "", "c"], "x")
    room = ctypes.create_string_buffer(4 * 8 + 6)
    out = (_abi.CTensor * 1)()
    out[0].data, out[0].bytes, out[0].memory = ctypes.addressof(room), len(room), _abi.HOST
    inputs = (_abi.CTensor * 1)(given)
    context._library.lathe_run(context._handle, None, inputs, 1, out, 1)
    assert out[0].data == ctypes.addressof(room)
    assert _strings.unpack(out[0]).tolist() == ["abab", "", "cc"]
    text, length = ctypes.c_char_p(), ctypes.c_uint64()
    at = context._library.lathe_string_at
    at.restype = ctypes.c_void_p
    assert at(ctypes.byref(out[0]), ctypes.c_uint64(2), ctypes.byref(text), ctypes.byref(length)) is None
    assert (text.value, length.value) == (b"cc", 2)
    assert at(ctypes.byref(out[0]), ctypes.c_uint64(3), ctypes.byref(text), ctypes.byref(length)) is not None
    out[0].bytes = len(room) - 1
    with pytest.raises(lathe.Error, match="the result has 38 bytes, the memory given 37"):
        context._library.lathe_run(context._handle, None, inputs, 1, out, 1)


PROGRAM = r"""
#include "lathe/runtime/lathe.hpp"
#include <cstdio>
int main(int, char **argv) {
  lathe::rt::Engine engine;
  lathe::rt::Context context;
  if (auto e = engine.open(argv[1]))
    return std::puts(e.message().c_str()), 1;
  if (auto e = context.create(engine, "cpu", 1))
    return std::puts(e.message().c_str()), 1;
  lathe::rt::Strings x({"a", "", "\u00e4"}, {3});
  lathe_tensor y{};
  if (auto e = context.run("", {{x.tensor()}}, {&y, 1}))
    return std::puts(e.message().c_str()), 1;
  std::vector<std::string> texts;
  if (auto e = lathe::rt::strings(y, texts))
    return std::puts(e.message().c_str()), 1;
  for (const std::string &text : texts)
    std::printf("<%s>", text.c_str());
}
"""


def test_from_cpp(tmp_path):
    path = model(tmp_path, "(string[N] x) => (string[N] y)", "y = StringConcat(x, x)")
    lathe_cli.lathe("compile", path, "-o", tmp_path / "e.lathe", "--target=x86-64-v3")
    (tmp_path / "app.cpp").write_text(PROGRAM)
    libraries = os.path.join(lathe_cli.BUILD, "lib")
    subprocess.run(["clang++-22", "-std=c++20", "-I", os.path.join(lathe_cli.ROOT, "include"), tmp_path / "app.cpp", "-o",
                    tmp_path / "app", "-L", libraries, "-llathe_runtime", f"-Wl,-rpath,{libraries}"], check=True)
    done = subprocess.run([tmp_path / "app", tmp_path / "e.lathe"], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("<aa><><ää>", 0)


def test_without_the_library(tmp_path):
    path = model(tmp_path, "(string[N] x) => (string[N] y)", "y = Identity(x)")
    lathe_cli.lathe("compile", path, "-o", tmp_path / "e.lathe", "--target=x86-64-v3")
    text = lathe_cli.lathe("run", tmp_path / "e.lathe", code=4, env={"LATHE_HOST_LIBRARY": str(tmp_path / "none.so")})
    assert "strings and images need liblathe_host.so, which cannot be opened" in text and "none.so" in text
    text = lathe_cli.lathe("run", tmp_path / "e.lathe", code=4,
                           env={"LATHE_HOST_LIBRARY": os.path.join(lathe_cli.BUILD, "lib", "liblathe_runtime.so")})
    assert "another version of the runtime" in text


def test_command(tmp_path):
    path = model(tmp_path, "(string[N] x, string[M] y) => (string[N, M] z)", "u = Unsqueeze(x, one)", "z = StringConcat(u, y)")
    proto = onnx.load(path)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "one"))
    onnx.save(proto, path)
    x, y = words(3), words(2, seed=2)
    np.save(tmp_path / "x.npy", x.astype(str))
    np.save(tmp_path / "y.npy", np.array([w.encode() for w in y]))
    want = [[a + b for b in y] for a in x]
    text = lathe_cli.lathe("run", path, "--target=x86-64-v3", "--input", f"x={tmp_path}/x.npy", "--input", f"y={tmp_path}/y.npy",
                           "--save", tmp_path / "out")
    assert "z string[3,2]: \"" in text
    with open(tmp_path / "out" / "outputs.json") as f:
        assert json.load(f)[0]["dtype"] == "string"
    assert np.load(tmp_path / "out" / "z.npy").tolist() == want
    data = tmp_path / "data"
    data.mkdir()
    for name, value in (("input_0", x), ("input_1", y), ("output_0", np.array(want, object))):
        with open(data / f"{name}.pb", "wb") as f:
            f.write(onnx.numpy_helper.from_array(value, name).SerializeToString())
    assert "PASSED" in lathe_cli.lathe("run", path, "--target=x86-64-v3", "--data", data)
    with open(data / "output_0.pb", "wb") as f:
        f.write(onnx.numpy_helper.from_array(np.array(want, object)[::-1].copy(), "z").SerializeToString())
    assert "FAILED" in lathe_cli.lathe("run", path, "--target=x86-64-v3", "--data", data, code=1)
    assert "holds Python objects" in lathe_cli.lathe("run", path, "--input", f"x={saved_objects(tmp_path)}", code=3)
    lathe_cli.lathe("run", path, "--target=x86-64-v3", "--const", f"y={tmp_path}/y.npy", "--input", f"x={tmp_path}/x.npy")


def saved_objects(folder):
    np.save(folder / "objects.npy", words(2), allow_pickle=True)
    return folder / "objects.npy"
