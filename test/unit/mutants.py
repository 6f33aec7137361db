# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plants mistakes in the scheduler and sampler, one at a time, and shows that ServeTest finds each.

    mutants.py BUILD [NUMBER...]     some of them, by their numbers

Each source is compiled again with one edit of the table, linked with the other objects of ServeTest and run. A row each:
found by a test, by the compiler, or by nothing. Exits with 1 where one is found by nothing.
"""
import os
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SERVE = os.path.join(ROOT, "runtime", "serve")

# (file, what stands there once, what stands there instead)
MUTANTS = [
    ("Plan.cpp", "std::min(request->pending(), budget));\n    if (!taken)\n      return taken.status();\n    if (*taken)",
     "request->pending());\n    if (!taken)\n      return taken.status();\n    if (*taken)"),
    ("Plan.cpp", "  budget -= count;\n", ""),
    ("Plan.cpp", "running.rbegin(), running.rend(), [](const Request *r)",
     "running.begin(), running.end(), [](const Request *r)"),
    ("Plan.cpp", "  LATHE_RETURN_IF_ERROR(makeRoom());\n", ""),
    ("Plan.cpp", "running.back()->options.priority < first->options.priority",
     "running.back()->options.priority <= first->options.priority"),
    ("Plan.cpp", "tenant->running >= quota.maxRequests", "tenant->running > quota.maxRequests"),
    ("Plan.cpp", "first->options.maxTokens > quota.maxTokens", "0 > quota.maxTokens"),
    ("Plan.cpp", "tenant->virtualTokens < best->virtualTokens", "tenant->virtualTokens > best->virtualTokens"),
    ("Plan.cpp", "std::max<uint64_t>(running.size() * groups, spare)", "running.size() * groups"),
    ("Plan.cpp", "before->options.priority >= request->options.priority",
     "before->options.priority > request->options.priority"),
    ("Plan.cpp", "  if (request->promptLogprobsLeft()) // what is in the cache has no logits\n    return true;\n", ""),
    ("Plan.cpp", "  --swapped;\n    return true;", "  return true;"),
    ("Plan.cpp", "2 * blocks * blockCost < request.computed * tokenCost", "true"),
    ("Plan.cpp", "  LATHE_RETURN_IF_ERROR(transfer());\n", ""),
    ("Plan.cpp", "asked > first ? asked - first : 0", "0"),
    ("Plan.cpp", "batch.positions.push_back(first + i)", "batch.positions.push_back(i)"),
    ("Plan.cpp", "batch.requests.push_back(int64_t(parts.size()))", "batch.requests.push_back(0)"),
    ("Plan.cpp", "  (void)cache->close(request->sequence);\n", ""),
    ("Plan.cpp", "  request->computed = 0;\n  leave", "  leave"),
    ("Plan.cpp", "  --tenant.running;\n", ""),
    ("Plan.cpp", "tenant.runningTokens -= request", "tenant.runningTokens += request"),
    ("Plan.cpp", "    row += places.pages;\n", ""),
    ("Scheduler.cpp", "model.copyBlock(copy.from, copy.to)", "model.copyBlock(copy.to, copy.from)"),
    ("Scheduler.cpp", "  for (const kv::BlockCopy &copy : wanted.copies)\n    LATHE_RETURN_IF_ERROR(model.copyBlock(copy.from, "
     "copy.to));\n", ""),
    ("Scheduler.cpp", "model.swapBlock(copy.device, copy.host, SwapWay::ToDevice)", "okStatus()"),
    ("Scheduler.cpp", "    if (request->swapped != kv::kNoSequence) {\n      (void)cache->close(std::exchange(request->swapped, "
     "kv::kNoSequence));\n      request->computed = 0;\n      --swapped;\n    }\n", ""),
    ("Scheduler.cpp", "    (void)cache->rollback();", "    (void)cache->commit();"),
    ("Scheduler.cpp", "    } else {\n      giveUp(request);\n    }\n    enqueue(request);", "    }\n    enqueue(request);"),
    ("Scheduler.cpp", "catch (const std::bad_alloc &) {\n    return runtimeError", "catch (const int &) {\n    return "
     "runtimeError"),
    ("Settle.cpp", "  to->computed = from->computed;\n", ""),
    ("Settle.cpp", "append(answer.request, answer)", "append(answer.request, step.answers[part.firstAnswer + a - 1])"),
    ("Scheduler.cpp", "  enqueue(heir);\n", ""),
    ("Scheduler.cpp", "request->options.sampling.sample += sample;", ""),
    ("Scheduler.cpp", "tenant.virtualTokens = std::max(tenant.virtualTokens, least);", ""),
    ("Settle.cpp", "tenant.virtualTokens += (computed - request->charged) / tenant.options.weight;", ""),
    ("Settle.cpp", "tenant.virtualTokens += 1 / tenant.options.weight;", "tenant.virtualTokens += 1;"),
    ("Settle.cpp", "std::find(stops.begin(), stops.end(), token) != stops.end()", "!stops.empty() && token == stops[0]"),
    ("Settle.cpp", "request->answer().size() == request->options.maxTokens",
     "request->answer().size() > request->options.maxTokens"),
    ("Settle.cpp", "    request->counts.addAnswer(token);\n", "    ;\n"),
    ("Settle.cpp", "prompt[part.firstLogprob + r + 1]", "prompt[r + 1]"),
    ("Settle.cpp", "    (void)cache->provide(request->sequence, token);\n", "    ;\n"),
    ("Settle.cpp", "part.request->source = kDrawnTokens + step", "part.request->source = step"),
    ("Settle.cpp", "part.takesBest || !part.completes", "true"),
    ("Settle.cpp", "    if (request->finish != Finish::None)\n      continue;", "    if (false)\n      continue;"),
    ("Settle.cpp", "    request->promisedLogprobs -= part.logprobRows;\n", ""),
    ("Scheduler.cpp", "  if (node.mapped()->flights)\n", "  if (false)\n"),
    ("Scheduler.cpp", "  cache->clearCache();\n", ""),
    ("Scheduler.cpp", "part.completes && part.takesBest ? int64_t", "part.completes ? int64_t"),
    ("Plan.cpp", "    admits = false;\n    LATHE_RETURN_IF_ERROR(awaitTokens());\n", "    admits = false;\n"),
    ("Plan.cpp", "(ends || !request->held.empty())", "!request->held.empty()"),
    ("Plan.cpp", "(ends || !request->held.empty())", "ends"),
    ("Plan.cpp", "seen.sinks = sinks, seen.from = from;", "seen.from = from;"),
    ("Plan.cpp", "page < sinks ? page : sinks + (page - sinks) % ring", "page % ring"),
    ("Plan.cpp", "int64_t(seen.from - seen.sinks)", "int64_t(seen.from)"),
    ("Plan.cpp", "slots.data() + g * tokens", "slots.data()"),
    ("Scheduler.cpp", "  if (length > limits.sequenceTokens)", "  if (length > limits.sequenceTokens + 1)"),
    ("Sampler.cpp", "while (above + histogram[d] < target)", "while (above + histogram[d] + 1 < target)"),
    ("Sampler.cpp", "key == pivot.key && pivot.ties == 0", "false"),
    ("Sampler.cpp", "(target - above + one - 1) / one", "(target - above) / one"),
    ("Sampler.cpp", "bits >> 31 ? ~bits", "bits >> 31 ? bits"),
    ("Sampler.cpp", "if (std::isnan(logit))\n    return 0;\n", "\n"),
    ("Sampler.cpp", "logit > 0 ? logit / s.repetitionPenalty", "logit > 0 ? logit * s.repetitionPenalty"),
    ("Sampler.cpp", "(entry.answered ? s.presencePenalty : 0)", "s.presencePenalty"),
    ("Sampler.cpp", "philox(index, s.sample, s.seed)", "philox(index, 0, s.seed)"),
    ("Sampler.cpp", "philox(index, s.sample, s.seed)", "philox(index / 2, s.sample, s.seed)"),
    ("Sampler.cpp", "if (index < s.minTokens)\n    for", "if (index <= s.minTokens)\n    for"),
    ("Sampler.cpp", "weight < least ? 0 : weight", "weight <= least ? 0 : weight"),
    ("Sampler.cpp", "kLog2E / double(temperature)", "kLog2E * double(temperature)"),
    ("Sampler.cpp", "result.rank += likelier(i, token);", "result.rank += logits[i] >= logits[token];"),
]


def command_of(build, target):
    return subprocess.run(["ninja", "-C", build, "-t", "commands", target], capture_output=True, text=True,
                          check=True).stdout.splitlines()[-1]


def main(argv):
    build = os.path.abspath(argv[1])
    chosen = [int(number) for number in argv[2:]] or range(len(MUTANTS))
    program = "test/unit/ServeTest"
    link = command_of(build, program)
    left = []
    for number in chosen:
        name, old, new = MUTANTS[number]
        with open(os.path.join(SERVE, name)) as f:
            text = f.read()
        assert text.count(old) == 1, f"mutant {number}: {text.count(old)} times in {name}: {old!r}"
        with tempfile.TemporaryDirectory() as folder:
            source, made, mutant = (os.path.join(folder, file) for file in (name, "mutant.o", "mutant"))
            with open(source, "w") as f:
                f.write(text.replace(old, new))
            objects = [word for word in shlex.split(link) if word.endswith(f"serve/{name}.o")]
            compile_ = command_of(build, objects[0])
            words = [source if word == os.path.join(SERVE, name) else made if word == objects[0] else
                     made + ".d" if word == objects[0] + ".d" else word for word in shlex.split(compile_)]
            done = subprocess.run([*words, f"-I{SERVE}"], cwd=build, capture_output=True, text=True)
            if done.returncode:
                print(f"{number:3} {name:14} the compiler: {done.stderr.splitlines()[0]}", flush=True)
                continue
            words = [made if word == objects[0] else mutant if word == program else word for word in shlex.split(link)
                     if word not in ("&&", ":")]
            subprocess.run(words, cwd=build, check=True)
            try:
                done = subprocess.run([mutant, "--gtest_brief=1", "--gtest_fail_fast"], capture_output=True,
                                      text=True, timeout=120)
                lines = [line for line in done.stdout.splitlines() if line.startswith("[  FAILED  ]")]
                found = lines[0].split()[3].rstrip(",") if lines else ""
                if not found and done.returncode:
                    found = f"ends with {done.returncode}"
            except subprocess.TimeoutExpired:
                found = "it never ends"
        print(f"{number:3} {name:14} {found or 'NOTHING'}", flush=True)
        if not found:
            left.append(number)
    print(f"{len(chosen) - len(left)} of {len(chosen)} mutants found", "; left: " + ", ".join(map(str, left)) if left else "")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
