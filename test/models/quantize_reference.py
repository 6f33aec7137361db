# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What lib/quantize computes, in numpy: ranges of histograms, GPTQ, factors of SmoothQuant, AWQ and equalization."""
import numpy as np

SIDE, PARTS = 2048, 128


def codes_of(low, high):
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float32((high - low) / 255)
    return float(scale), float(np.clip(np.rint(-low / float(scale)), 0, 255))


def histogram(x):
    """Counts of bins [k w, (k + 1) w), -SIDE <= k < SIDE, and w: the least power of two that holds all."""
    largest = float(np.abs(x).max())
    width = 2.0 ** np.frexp(largest)[1] / SIDE
    return np.bincount(np.floor(x.astype(np.float64).ravel() / width).astype(int) + SIDE, minlength=2 * SIDE), width


def percentile(x, p):
    counts, width = histogram(x)
    out = x.size * (100 - p) / 200
    low = int(np.argmax(np.cumsum(counts) > out)) - SIDE
    high = SIDE - 1 - int(np.argmax(np.cumsum(counts[::-1]) > out))
    return max(float(x.min()), low * width), min(float(x.max()), (high + 1) * width)


def best_range(x, loss):
    """loss(centres, counts, low, high, code of each centre, scale, zero point) over parts of the extremes."""
    counts, width = histogram(x)
    filled = np.nonzero(counts)[0]
    centres, counts = (filled - SIDE + 0.5) * width, counts[filled].astype(np.float64)
    low, high = float(x.min()), float(x.max())
    best = [np.inf, low, high]

    def attempt(lo, hi):
        scale, zero = codes_of(lo, hi)
        if scale < np.finfo(np.float32).tiny:
            return
        codes = np.clip(np.rint(centres / scale) + zero, 0, 255)
        value = loss(centres, counts, lo, hi, codes, scale, zero)
        if value < best[0]:
            best[:] = [value, lo, hi]

    for i in range(PARTS, 0, -1):
        attempt(low * i / PARTS, high * i / PARTS)
    joint = best[1]
    for i in range(PARTS, 0, -1):
        if high > 0:
            attempt(joint, high * i / PARTS)
    upper = best[2]
    for i in range(PARTS, 0, -1):
        if low < 0:
            attempt(low * i / PARTS, upper)
    return best[1], best[2]


def squared_error(centres, counts, low, high, codes, scale, zero):
    return float((counts * (centres - (codes - zero) * scale) ** 2).sum())


def divergence(centres, counts, low, high, codes, scale, zero):
    inside = np.nonzero((centres >= low) & (centres <= high))[0]
    if not inside.size:
        return np.inf
    first, last = inside[0], inside[-1]
    p, codes = counts[first:last + 1].copy(), codes[first:last + 1].astype(int)
    mass, used = np.bincount(codes, p, 256), np.bincount(codes, minlength=256)
    q = mass[codes] / used[codes] / p.sum()
    p[0] += counts[:first].sum()
    p[-1] += counts[last + 1:].sum()
    p /= counts.sum()
    return float((p * np.log(p / q)).sum())


def nearest(w, block, bits):
    """Codes and scales of w [n, k] in blocks of k."""
    greatest = np.float32((1 << (bits - 1)) - 1)
    scales = np.abs(w.reshape(len(w), -1, block)).max(2) / greatest
    scales[scales < np.finfo(np.float32).tiny] = 1
    wide = np.repeat(scales, block, 1)
    return np.clip(np.rint(w / wide), -greatest, greatest), scales, wide


def gptq(w, x, block, bits, damping=0.01):
    """The algorithm of Frantar et al. with the inverse spelled out; w [n, k], x [rows, k]."""
    h = x.T.astype(np.float64) @ x
    unseen = np.diag(h) == 0
    mean = np.diag(h).mean()
    h[unseen, unseen] = mean if mean > 0 else 1
    h += damping * mean * np.eye(len(h))
    factor = np.linalg.cholesky(np.linalg.inv(h)).T
    w, codes = w.astype(np.float64), np.zeros(w.shape)
    greatest = (1 << (bits - 1)) - 1
    scales = np.zeros((len(w), w.shape[1] // block), np.float32)
    for k in range(w.shape[1]):
        if k % block == 0:
            scales[:, k // block] = (np.abs(w[:, k:k + block]).max(1) / greatest).astype(np.float32)
        scale = scales[:, k // block].astype(np.float64)
        codes[:, k] = np.clip(np.rint(w[:, k] / scale), -greatest, greatest)
        error = (w[:, k] - codes[:, k] * scale) / factor[k, k]
        w[:, k + 1:] -= np.outer(error, factor[k, k + 1:])
    return codes, scales


def smooth(x, weights, alpha=0.5):
    """weights: a list of [n, k]."""
    largest = np.max([np.abs(w).max(0) for w in weights], 0).astype(np.float64)
    return (np.abs(x).max(0).astype(np.float64) ** alpha / largest ** (1 - alpha)).astype(np.float32)


def awq(x, weights, block, bits):
    magnitude, square = np.abs(x).mean(0, dtype=np.float64), (x.astype(np.float64) ** 2).sum(0)
    best = (np.inf, None)
    for step in range(20):
        factors = np.maximum(magnitude ** (step / 20), 1e-4)
        factors = (factors / np.sqrt(factors.min() * factors.max())).astype(np.float32)
        loss = 0
        for w in weights:
            codes, _, wide = nearest(w * factors, block, bits)
            loss += (square * (w - codes * wide / factors.astype(np.float64)) ** 2).sum()
        if loss < best[0]:
            best = (loss, factors)
    return best[1]


def equalize(layers, pairs, depthwise=()):
    """Factors of each pair's channels: the first one's outputs are divided by them until both sides have the same magnitudes.
    layers: a list of magnitudes [outputs, inputs], of which those of a depthwise one are [channels, 1]."""
    layers = [np.array(layer, np.float64) for layer in layers]
    factors = [np.ones(len(layers[first])) for first, _ in pairs]
    for _ in range(1000):
        for p, (first, second) in enumerate(pairs):
            ahead = layers[first].max(1)
            behind = layers[second][:, 0] if second in depthwise else layers[second].max(0)
            s = np.sqrt(ahead / behind)
            layers[first] /= s[:, None]
            layers[second] *= s[:, None] if second in depthwise else s
            factors[p] *= s
    return factors
