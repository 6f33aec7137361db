# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""magika: the types of files, with their scores."""
import gzip

from magika import Magika

magika = Magika()
texts = {
    "python": b"import sys\n\n\ndef main(argv):\n    print(len(argv))\n\n\nmain(sys.argv)\n" * 3,
    "c": b"#include <stdio.h>\nint main(void) {\n  printf(\"%d\\n\", 3);\n  return 0;\n}\n" * 3,
    "json": b'{"name": "lathe", "list": [1, 2, 3], "deep": {"true": false}}\n' * 4,
    "gzip": gzip.compress(bytes(range(256)) * 20, mtime=0),
    "short": b"a",
}
results = {}
for name, content in texts.items():
    said = magika.identify_bytes(content)
    results[name] = (str(said.output.label), float(said.score))
