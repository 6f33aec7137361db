//===- NormalFloat.h - the table of NF4 -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_SUPPORT_NORMALFLOAT_H
#define LATHE_SUPPORT_NORMALFLOAT_H

namespace lathe {

/// What a code of NF4 means, in units of its block's greatest magnitude: quantiles of the normal distribution
/// (Dettmers et al., "QLoRA", 2023; bitsandbytes' numbers).
inline constexpr double kNf4[16] = {-1.0,
                                    -0.6961928009986877,
                                    -0.5250730514526367,
                                    -0.39491748809814453,
                                    -0.28444138169288635,
                                    -0.18477343022823334,
                                    -0.09105003625154495,
                                    0.0,
                                    0.07958029955625534,
                                    0.16093020141124725,
                                    0.24611230194568634,
                                    0.33791524171829224,
                                    0.44070982933044434,
                                    0.5626170039176941,
                                    0.7229568362236023,
                                    1.0};

} // namespace lathe

#endif // LATHE_SUPPORT_NORMALFLOAT_H
