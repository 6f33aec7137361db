# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the corpus on a machine that has a GPU but no compiler, and that no command reaches: requests travel as files.

    lathe-conformance CORPUS ... --runner="carry.py ask FOLDER"       here: notes what is to be run
    carry.py run FOLDER [--jobs=N] RUNNER...                          there: needs Python, lathe-runner, its runtime
    lathe-conformance CORPUS ... --runner="carry.py ask FOLDER" --ran-on="NVIDIA H200,13000"   here again: the same
                                                                      requests have answers now

FOLDER/requests has what was asked and has no answer yet, FOLDER/answers what RUNNER (as `lathe-runner
--device=cuda:0`) answered. Both are messages of tools/lathe-runner/Protocol.h behind one another, requests as they were
asked, a file for each process that asked. An answer is that of its request behind all requests since an engine was
opened. Engines have equal bytes each time they are compiled, so that the second run asks for the same.

What draws at random is asked for more than once, each time behind the answer before: where a second run of an engine
gives another result, `run` also answers SEEDS, which is what lathe-conformance asks for then.
"""
import glob
import hashlib
import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

OPEN, SEED, RUN = b"O", b"S", b"R"
OK, UNSUPPORTED = 0, 2
# checkDraws() of tools/lathe-conformance: seeds, and so many runs behind each.
SEEDS, RUNS = (7, 7), 16


def receive(stream):
    """A message, or None where the stream ends."""
    size = stream.read(8)
    if len(size) < 8:
        return None
    size, = struct.unpack("<Q", size)
    message = stream.read(size)
    return message if len(message) == size else None


def send(stream, message):
    stream.write(struct.pack("<Q", len(message)) + message)


def status(code, text=""):
    return struct.pack("<IQ", code, len(text)) + text.encode()


def succeeded(answer):
    return answer is not None and struct.unpack_from("<I", answer)[0] == OK


def messages(pattern):
    for path in sorted(glob.glob(pattern)):
        with open(path, "rb") as stream:
            while (message := receive(stream)) is not None:
                yield message


class Chain:
    """Names a request by all since its engine was opened."""

    def __init__(self):
        self.digest = b""

    def add(self, request):
        self.digest = hashlib.sha256((b"" if request[:1] == OPEN else self.digest) + request).digest()
        return self.digest


def read_answers(folder):
    """{chain: answer}; a file has a chain and its answer by turns."""
    answers = {}
    for path in glob.glob(os.path.join(folder, "answers", "*")):
        both = list(messages(path))
        answers.update(zip(both[::2], both[1::2]))
    return answers


def ask(folder):
    answers, chain = read_answers(folder), Chain()
    os.makedirs(os.path.join(folder, "requests"), exist_ok=True)
    opened, noted = [], None
    while (request := receive(sys.stdin.buffer)) is not None:
        if request[:1] == OPEN:
            opened = []
        answer = answers.get(chain.add(request))
        opened.append(request)
        if answer is None:
            # An engine alone is no work; its first unanswered run takes those before along.
            if request[:1] == RUN:
                noted = noted or open(os.path.join(folder, "requests", str(os.getpid())), "wb")
                for one in opened:
                    send(noted, one)
                noted.flush()
            answer = status(OK) if request[:1] in (OPEN, SEED) else status(UNSUPPORTED, "noted, not run")
        send(sys.stdout.buffer, answer)
        sys.stdout.buffer.flush()


class Runner:
    """One process; it is started anew when it has died."""

    def __init__(self, command):
        self.command, self.process = command, None

    def answer(self, request):
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            send(self.process.stdin, request)
            self.process.stdin.flush()
            answer = receive(self.process.stdout)
        except BrokenPipeError:
            answer = None
        if answer is None:
            code = self.process.wait()
            self.process = None
            answer = status(7, f"the runner gave no answer and ended with exit code {code}")
        return answer


def sessions(requests):
    """Lists of requests that begin with an engine, each once."""
    found = []
    for request in requests:
        if request[:1] == OPEN:
            found.append([])
        found[-1].append(request)
    return list({hashlib.sha256(b"".join(one)).digest(): one for one in found}.values())


def run_session(runner, requests):
    """[(chain, answer)] of a session."""
    chain, done = Chain(), []

    def take(request):
        answer = runner.answer(request)
        done.append((chain.add(request), answer))
        return answer
    for request in requests:
        answer = take(request)
        if not succeeded(answer):
            return done
    last = requests[-1]
    if last[:1] == RUN and len(requests) == 2 and runner.answer(last) != answer:
        for seed in SEEDS:
            for request in [SEED + struct.pack("<Q", seed)] + [last] * RUNS:
                take(request)
    return done


def run(folder, jobs, command):
    os.makedirs(os.path.join(folder, "answers"), exist_ok=True)
    work = sessions(messages(os.path.join(folder, "requests", "*")))
    queue = iter(work)

    def one(job):
        runner, count = Runner(command), 0
        with open(os.path.join(folder, "answers", f"{os.getpid()}-{job}"), "wb") as out:
            for session in queue:
                for chain, answer in run_session(runner, session):
                    send(out, chain)
                    send(out, answer)
                out.flush()  # who is stopped leaves what is done
                count += 1
        return count
    with ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(one, range(jobs)))
    print(f"{sum(done)} of {len(work)} sessions by {jobs} runners")


def main(argv):
    if len(argv) == 3 and argv[1] == "ask":
        return ask(argv[2])
    if len(argv) > 3 and argv[1] == "run":
        jobs = [word.removeprefix("--jobs=") for word in argv[3:4] if word.startswith("--jobs=")]
        return run(argv[2], int(jobs[0]) if jobs else 1, argv[3 + len(jobs):])
    print(__doc__)
    return 0 if "--help" in argv else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv))
