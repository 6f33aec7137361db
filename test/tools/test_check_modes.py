# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""test/conformance/check_modes.py sees each way in which a ledger of another mode can be wrong."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "conformance"))
import check_modes  # noqa: E402

NAMES = [f"node/test_{i:02}" for i in range(50)]
INDEX = [[name, "1e-3", "1e-7", "Exp", "float"] for name in NAMES]
TABLE = {("Exp", "float"): ("elements", 5.0)}
REFUSED = ["unsupported", "-", "-", "-", "unsupported: its rank would vary"]


def rows(how):
    return [[name, "passed", how, "3", "3.00", ""] for name in NAMES]


class CheckModes(unittest.TestCase):
    def problems(self, mode="all-symbolic", change=None, run=None, exempt=None, header=None):
        """The messages after `change` to the rows of the ledger, and `run` to those of a run that is the same otherwise."""
        how = "folded" if mode == "all-constant" else "generated"
        ledger, fresh = rows(how), rows(how)
        for edit, given in ((change, (ledger, fresh)), (run, (fresh,))):
            for one in given if edit else ():
                edit(one)
        top = {"format": "", "target": "x86-64-v3", "mode": mode, "device": "cpu", "driver": "-", "commit": "0" * 40}
        given = {name: [name, "passed", "generated", "3", "3.00", ""] for name in NAMES}
        given[NAMES[1]] = [NAMES[1], "frozen", "generated", "3", "3.00", "given when compiling: axes"]
        exempt = {name: {} for name in check_modes.MODES} | {mode: exempt or {}}
        judge = check_modes.ModeJudge(INDEX, given, exempt, TABLE, lambda commit: True)
        judge.ledger(top | (header or {}), ledger)
        judge.run(top, fresh[::5], (top, ledger))
        return "\n".join(judge.problems)

    def put(self, number, *columns):
        return lambda given: given[number].__setitem__(slice(1, None), columns)

    def test_same(self):
        for mode in check_modes.MODES:
            self.assertEqual(self.problems(mode), "")

    def test_what_passes_as_given_is_refused(self):
        refuse = self.put(5, *REFUSED)
        self.assertRegex(self.problems(change=refuse), "05: is unsupported; exempt.tsv says nothing; .*rank")
        self.assertEqual(self.problems(change=refuse, exempt={NAMES[5]: ("unsupported", "why")}), "")
        self.assertRegex(self.problems(exempt={NAMES[5]: ("unsupported", "why")}), "05: is passed; exempt.tsv says unsup")

    def test_frozen_only_as_given(self):
        freeze = ("frozen", "generated", "3", "3.00", "given when compiling: axes")
        self.assertEqual(self.problems(change=self.put(1, *freeze)), "")
        self.assertRegex(self.problems(change=self.put(2, *freeze)), "02: is frozen; exempt.tsv says nothing")

    def test_errors_and_figures(self):
        crash = self.put(5, "error", "-", "-", "-", "internal: crashed")
        self.assertRegex(self.problems(change=crash, exempt={NAMES[5]: ("error", "")}), "typed error")
        self.assertRegex(self.problems(change=self.put(5, "passed", "generated", "9", "9.00", "")), "5 are the most")

    def test_lengths(self):
        given = self.put(5, "passed", "generated", "3", "3.00", "lengths given: axes")
        self.assertEqual(self.problems(change=given), "")
        self.assertRegex(self.problems("all-constant", change=given), "in mode all-constant")

    def test_what_is_not_folded(self):
        compute = self.put(5, "passed", "generated", "3", "3.00", "")
        self.assertRegex(self.problems("all-constant", change=compute), "05: is generated; exempt.tsv says nothing")
        self.assertEqual(self.problems("all-constant", change=compute, exempt={NAMES[5]: ("generated", "size")}), "")

    def test_a_run_that_differs(self):
        self.assertRegex(self.problems(run=self.put(5, "passed", "library", "3", "3.00", "")), "this run passed library")
        self.assertRegex(self.problems(run=self.put(5, "passed", "generated", "9", "9.00", "")), "ledger has 3 ULP")
        self.assertRegex(self.problems(run=self.put(5, *REFUSED)), "this run unsupported")
        self.assertRegex(self.problems(run=lambda given: given.clear()), "has no row")

    def test_rows_and_exemptions(self):
        self.assertRegex(self.problems(change=lambda given: given.pop()), "49 rows are not the 50")
        self.assertRegex(self.problems(exempt={"node/other": ("unsupported", "")}), "no tests of the index")
        many = {name: ("unsupported", "") for name in NAMES[:41]}

        def refuse(given):
            for row in given[:41]:
                row[1:] = REFUSED
        self.assertRegex(self.problems(change=refuse, exempt=many), "41 tests of all-symbolic, 40 are the most")

    def compiled(self, change=None, refused=(), header=None):
        """The messages after `change` to the rows of a run that compiles for a GPU, one of which the ledger refuses."""
        ledger, run = rows("generated"), [[name, "compiled", "generated", "-", "-", ""] for name in NAMES]
        ledger[7][1:] = run[7][1:] = REFUSED
        for name in refused:
            run[NAMES.index(name)][1:] = REFUSED
        if change:
            change(run)
        top = {"target": "sm_90a", "mode": "all-symbolic", "device": "none"} | (header or {})
        judge = check_modes.ModeJudge(INDEX, {}, {}, TABLE, lambda commit: True)
        judge.compiled(top, run, ({"mode": "all-symbolic"}, ledger), set(refused))
        return "\n".join(judge.problems)

    def test_what_a_gpu_refuses_alone(self):
        self.assertEqual(self.compiled(), "")
        self.assertEqual(self.compiled(refused=[NAMES[3]]), "")
        self.assertRegex(self.compiled(self.put(5, *REFUSED)), "05: is unsupported; the CPU's ledger says passed; .*rank")
        self.assertRegex(self.compiled(self.put(7, "compiled", "generated", "-", "-", "")), "07: is compiled")
        self.assertRegex(self.compiled(self.put(5, "compiled", "host", "-", "-", "")), "a host op")
        self.assertRegex(self.compiled(self.put(5, "error", "-", "-", "-", "internal: crashed")), "typed error")
        self.assertRegex(self.compiled(lambda run: run.clear()), "has no row")
        self.assertRegex(self.compiled(header={"mode": "as-given"}), "is of as-given for sm_90a")
        self.assertRegex(self.compiled(header={"target": "x86-64-v3"}), "is of all-symbolic for x86")

    def test_headers(self):
        self.assertRegex(self.problems(header={"mode": "as-given"}), "mode as-given")
        self.assertRegex(self.problems(header={"device": "cuda:0"}), "device cuda:0")


if __name__ == "__main__":
    unittest.main()
