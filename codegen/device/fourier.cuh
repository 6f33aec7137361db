//===- fourier.cuh - discrete Fourier transforms of rows -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: math
//
// y[row, k] = the sum over t of x[row, t] e^(-2 pi i t k / N), or the inverse of that, by Stockham's form of the
// fast transform in shared memory: each stage takes elements M / R apart, transforms R of them in registers and
// leaves them where the next stage finds its own. A block has ROWS rows, which its threads share evenly.
// Real rows of even length are N / 2 complex numbers, x[2 t] + i x[2 t + 1], whose spectrum is taken apart behind
// the last stage; half a spectrum is put together ahead of the first. No row reads another's elements. Holes:
//
//   typedef ... Real;                       what is computed with
//   static constexpr int LENGTH, BINS;      N, and how many of y are wanted
//   static constexpr FourierInput INPUT; static constexpr bool INVERSE;
//   static constexpr int USED;              elements of a row that are there; zeros follow
//   Real element(i64 row, i64 t, i64 part); part 0 real, 1 imaginary
//   Vec<Real, 2> root(i64 j);               e^(-2 pi i j / N)
//   void store(i64 row, i64 k, const Vec<Real, 2> &y); real and imaginary part; of HALF, which gives real rows,
//                                           y[2 k] and y[2 k + 1] where N is even, y[k] and nothing where it is odd
//
// N has no prime factor above FOURIER_RADIX. The grid is a block for ROWS rows.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_FOURIER
#define LATHE_DEVICE_FOURIER

constexpr int FOURIER_RADIX = 13;

/// What a row is: complex numbers; real ones; half of a spectrum whose other half mirrors it.
enum class FourierInput { COMPLEX, REAL, HALF };

/// Elements that a stage transforms together where `rest` is left: 8 or 4 while there are twos, then the odd primes.
constexpr int fourierRadix(int rest) {
  int twos = 0, odd = 3;
  for (int r = rest; r % 2 == 0; r /= 2) ++twos;
  if (twos > 0) return twos % 3 == 0 ? 8 : twos == 1 ? 2 : 4;
  while (rest > 1 && rest % odd != 0) odd += 2;
  return rest > 1 ? odd : 1;
}

template <int ROWS, class H> struct FourierTile {
  static constexpr bool PACKED = H::INPUT != FourierInput::COMPLEX && H::LENGTH % 2 == 0;
  static constexpr int M = PACKED ? H::LENGTH / 2 : H::LENGTH; ///< complex elements of a row
  static constexpr int ROW = M + M / 16; ///< with one place left out behind 16, so that strides of 8 meet all banks
  static constexpr int SHARED_BYTES = 4 * ROWS * ROW * (int)sizeof(typename H::Real);
};

template <class Real> struct Complex { Real re, im; };
template <class Real> LATHE_DEV Complex<Real> operator+(Complex<Real> a, Complex<Real> b) { return {a.re + b.re, a.im + b.im}; }
template <class Real> LATHE_DEV Complex<Real> operator-(Complex<Real> a, Complex<Real> b) { return {a.re - b.re, a.im - b.im}; }
template <class Real> LATHE_DEV Complex<Real> operator*(Complex<Real> a, Complex<Real> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class Real> LATHE_DEV Complex<Real> conjugate(Complex<Real> a) { return {a.re, -a.im}; }
/// a times -i
template <class Real> LATHE_DEV Complex<Real> turned(Complex<Real> a) { return {a.im, -a.re}; }

template <class Real> LATHE_DEV void transform4(Complex<Real> &a, Complex<Real> &b, Complex<Real> &c, Complex<Real> &d) {
  const Complex<Real> s = a + c, t = a - c, u = b + d, v = turned(b - d);
  a = s + u;
  b = t + v;
  c = s - u;
  d = t - v;
}

/// The transform of R elements in place; of an odd R with `roots` e^(-2 pi i j / R) from j = 1 to R / 2.
template <int R, class Real> LATHE_DEV void transformFew(Complex<Real> (&v)[R], const Complex<Real> *roots) {
  if constexpr (R == 1) {
  } else if constexpr (R == 2) {
    const Complex<Real> a = v[0];
    v[0] = a + v[1];
    v[1] = a - v[1];
  } else if constexpr (R == 4) {
    transform4(v[0], v[1], v[2], v[3]);
  } else if constexpr (R == 8) {
    const Real h = (Real)0.70710678118654752440;
    transform4(v[0], v[2], v[4], v[6]);
    transform4(v[1], v[3], v[5], v[7]);
    const Complex<Real> odd[4] = {v[1], {h * (v[3].re + v[3].im), h * (v[3].im - v[3].re)}, turned(v[5]),
                                  {h * (v[7].im - v[7].re), -h * (v[7].re + v[7].im)}};
    const Complex<Real> even[4] = {v[0], v[2], v[4], v[6]};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      v[k] = even[k] + odd[k];
      v[k + 4] = even[k] - odd[k];
    }
  } else { // elements j and R - j meet the same cosine, and sines of either sign
    constexpr int HALF = R / 2;
    Complex<Real> sum[HALF], difference[HALF];
    const Complex<Real> first = v[0];
#pragma unroll
    for (int j = 0; j < HALF; ++j) {
      sum[j] = v[j + 1] + v[R - 1 - j];
      difference[j] = v[j + 1] - v[R - 1 - j];
      v[0] = v[0] + sum[j];
    }
#pragma unroll
    for (int k = 1; k <= HALF; ++k) {
      Complex<Real> even = first, odd = {0, 0};
#pragma unroll
      for (int j = 1; j <= HALF; ++j) {
        const int turn = j * k % R;
        const Complex<Real> root = turn <= HALF ? roots[turn - 1] : conjugate(roots[R - turn - 1]);
        even = even + Complex<Real>{sum[j - 1].re * root.re, sum[j - 1].im * root.re};
        odd = odd + Complex<Real>{-difference[j - 1].im * root.im, difference[j - 1].re * root.im}; // times i root.im
      }
      v[k] = even + odd;
      v[R - k] = even - odd;
    }
  }
}

template <int ROWS, int THREADS, class H> struct FourierBlock {
  typedef typename H::Real Real;
  typedef Complex<Real> C;
  typedef FourierTile<ROWS, H> Tile;
  static constexpr FourierInput INPUT = H::INPUT;
  static constexpr bool PACKED = Tile::PACKED, INVERSE = H::INVERSE;
  static constexpr int N = H::LENGTH, BINS = H::BINS, M = Tile::M, ROW = Tile::ROW, PLANE = ROWS * ROW;

  const H &h;
  Real *memory;  ///< two buffers, of real and imaginary parts each
  i64 firstRow, rows;

  LATHE_METHOD C root(int j) const {
    const Vec<Real, 2> r = h.root(j);
    return {r.v[0], r.v[1]};
  }
  static LATHE_METHOD int placeOf(int row, int i) { return row * ROW + i + i / 16; }
  LATHE_METHOD C kept(int buffer, int row, int i) const {
    const Real *at = memory + buffer * 2 * PLANE + placeOf(row, i);
    return {at[0], at[PLANE]};
  }
  LATHE_METHOD void keep(int buffer, int row, int i, C v) const {
    Real *at = memory + buffer * 2 * PLANE + placeOf(row, i);
    at[0] = v.re;
    at[PLANE] = v.im;
  }

  LATHE_METHOD Real part(i64 row, int t, int which) const { return t < H::USED ? h.element(row, t, which) : (Real)0; }
  /// Of half a spectrum, conjugated: the inverse is the transform of that, conjugated.
  LATHE_METHOD C mirrored(i64 row, int k) const {
    const bool real = k == 0 || 2 * k == N; // what is mirrored onto itself
    return {part(row, k, 0), real ? (Real)0 : -part(row, k, 1)};
  }
  /// Element i of the M that are transformed.
  LATHE_METHOD C given(i64 row, int i) const {
    if constexpr (INPUT == FourierInput::REAL) {
      if constexpr (PACKED) return {part(row, 2 * i, 0), part(row, 2 * i + 1, 0)};
      else return {part(row, i, 0), 0};
    } else if constexpr (INPUT == FourierInput::COMPLEX) {
      const Real im = part(row, i, 1);
      return {part(row, i, 0), INVERSE ? -im : im};
    } else if constexpr (PACKED) {
      const C a = mirrored(row, i), b = conjugate(mirrored(row, M - i)), even = a + b, odd = (a - b) * root(i);
      return {even.re - odd.im, even.im + odd.re};
    } else {
      return i <= N / 2 ? mirrored(row, i) : conjugate(mirrored(row, N - i));
    }
  }

  LATHE_METHOD void put(i64 row, int k, C y) const {
    if (k >= BINS) return; // of a packed half k counts pairs, and BINS is N
    constexpr Real scale = INVERSE ? (Real)(1.0 / N) : (Real)1;
    h.store(row, k, Vec<Real, 2>{{y.re * scale, (INVERSE ? -y.im : y.im) * scale}});
  }

  /// The stage that leaves transforms of NS * R elements, and those behind it.
  template <int NS, int BUFFER> LATHE_METHOD void stages() const {
    constexpr int R = fourierRadix(M / NS), PARTS = M / R;
    static_assert(R <= FOURIER_RADIX, "a stage in registers");
    constexpr bool FIRST = NS == 1, LAST = NS * R == M, DIRECT = LAST && !(PACKED && INPUT == FourierInput::REAL);
    C odd[R / 2 + 1];
    if constexpr (R % 2 == 1) {
#pragma unroll
      for (int j = 0; j < R / 2; ++j) odd[j] = root((j + 1) * (N / R));
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * PARTS; i += THREADS) {
      const int local = i / PARTS, j = i % PARTS;
      const i64 row = firstRow + local;
      if ((FIRST || DIRECT) && row >= rows) continue;
      C v[R];
#pragma unroll
      for (int q = 0; q < R; ++q) v[q] = FIRST ? given(row, j + q * PARTS) : kept(1 - BUFFER, local, j + q * PARTS);
      if constexpr (!FIRST) {
        C powers[R]; // products of few factors each
        powers[1] = root(j % NS * (N / (NS * R)));
        v[1] = v[1] * powers[1];
#pragma unroll
        for (int q = 2; q < R; ++q) {
          powers[q] = powers[q / 2] * powers[q - q / 2];
          v[q] = v[q] * powers[q];
        }
      }
      transformFew<R>(v, odd);
      const int to = j / NS * (NS * R) + j % NS;
#pragma unroll
      for (int q = 0; q < R; ++q) {
        if constexpr (!DIRECT) keep(BUFFER, local, to + q * NS, v[q]);
        else if constexpr (INPUT == FourierInput::HALF && PACKED) put(row, to + q * NS, {v[q].re, -v[q].im});
        else put(row, to + q * NS, v[q]);
      }
    }
    if constexpr (!DIRECT) __syncthreads();
    if constexpr (!LAST) stages<NS * R, 1 - BUFFER>();
    else if constexpr (!DIRECT) separate<BUFFER>();
  }

  /// Spectra of real rows from those of their even elements + i times their odd ones.
  template <int BUFFER> LATHE_METHOD void separate() const {
    constexpr int PAIRS = M / 2 + 1;
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * PAIRS; i += THREADS) {
      const int local = i / PAIRS, k = i % PAIRS;
      const i64 row = firstRow + local;
      if (row >= rows) continue;
      const C a = kept(BUFFER, local, k), b = conjugate(kept(BUFFER, local, k == 0 ? 0 : M - k));
      const C sum = a + b, turn = turned(a - b) * root(k);
      const Real half = (Real)0.5;
      const C low = {half * (sum.re + turn.re), half * (sum.im + turn.im)};
      const C high = {half * (sum.re - turn.re), half * (turn.im - sum.im)};
      put(row, k, low);
      if (k > 0) put(row, N - k, conjugate(low));
      if (k == M - k) continue;
      put(row, M - k, high);
      if (k > 0) put(row, M + k, conjugate(high));
    }
  }
};

template <int ROWS, int THREADS, class H> LATHE_DEV void transformRows(const H &h, i64 rows) {
  LATHE_DYNAMIC_SHARED(shared);
  const FourierBlock<ROWS, THREADS, H> block{h, (typename H::Real *)shared, (i64)blockIdx.x * ROWS, rows};
  block.template stages<1, 0>();
}

#endif // LATHE_DEVICE_FOURIER
