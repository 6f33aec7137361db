# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the pictures of pictures.md in headless Chromium: screenshots.py

The pages are made with the programs of build/bin (or LATHE_BUILD); the pictures are written into this folder.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "python-frontend"), str(ROOT / "test" / "tools")]
MODEL = ROOT / "test" / "tools" / "Inputs" / "mlp.onnxtxt"
NOTEBOOK = """<!doctype html><meta charset="utf-8"><style>body{{font:14px system-ui,sans-serif;margin:20px}}
pre{{background:#f4f4f4;padding:8px}}</style>{cells}"""


def notebook():
    """The cells that pictures.md shows, as a notebook draws them."""
    import numpy as np

    import lathe
    engine = lathe.compile(MODEL)
    context = engine.context(threads=1)
    inputs = {"x": np.ones((8, 8), np.float32)}
    context.run(inputs)
    with context.profile() as profile:
        for _ in range(100):
            context.run(inputs)
    cells = [("engine", engine), ("profile", profile), ("context.memory", context.memory)]
    return NOTEBOOK.format(cells="".join(f"<pre>{code}</pre>{shown._repr_html_()}" for code, shown in cells))


def main():
    from browser import browser
    lathe = pathlib.Path(os.environ.get("LATHE_BUILD", ROOT / "build")) / "bin" / "lathe"
    with tempfile.TemporaryDirectory() as folder, browser(1100, 800) as chromium:
        page = pathlib.Path(folder, "mlp.html")
        subprocess.run([lathe, "inspect", MODEL, "--target=sm_90a", f"--html={page}"], check=True,
                       stdout=subprocess.DEVNULL)
        chromium.open(page)
        labels = [text.text for text in chromium.all("#view svg text")]
        chromium.all("rect.op")[labels.index("MatMul")].click()
        chromium.picture(HERE / "inspect_kernel.png")
        page = pathlib.Path(folder, "ppocr_cls.html")
        subprocess.run([lathe, "inspect", ROOT / "build/models/ppocr_cls.onnx", "--target=x86-64-v3",
                        "--shape=x=1x3x48x192", f"--html={page}"], check=True, stdout=subprocess.DEVNULL)
        chromium.open(page)
        chromium.one('#tabs button[data-tab="memory"]').click()
        chromium.picture(HERE / "inspect_memory.png")
        page = pathlib.Path(folder, "notebook.html")
        page.write_text(notebook())
        chromium.open(page)
        chromium.picture(HERE / "notebook.png")


if __name__ == "__main__":
    sys.exit(main())
