// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s
// RUN: %lathe-opt %s --canonicalize | FileCheck %s --check-prefix=FOLD
// Parsing, printing, inference (the verifier infers again) and folds of pointwise ops.

!x = tensor<?x4xf32, #lathe.t<[B, 4]>>

// CHECK-LABEL: func.func @unary
func.func @unary(%x: !x) -> !x {
  // CHECK: lathe.exp %{{.*}} : (tensor<?x4xf32, #lathe.t<[B, 4]>>) -> tensor<?x4xf32, #lathe.t<[B, 4]>>
  %0 = lathe.exp %x : (!x) -> !x
  %1 = lathe.neg %0 : (!x) -> !x
  %2 = lathe.abs %1 : (!x) -> !x
  %3 = lathe.sign %2 : (!x) -> !x
  %4 = lathe.floor %3 : (!x) -> !x
  %5 = lathe.ceil %4 : (!x) -> !x
  %6 = lathe.round %5 : (!x) -> !x
  %7 = lathe.trunc %6 : (!x) -> !x
  %8 = lathe.expm1 %7 : (!x) -> !x
  %9 = lathe.log %8 : (!x) -> !x
  %10 = lathe.log1p %9 : (!x) -> !x
  %11 = lathe.sqrt %10 : (!x) -> !x
  %12 = lathe.rsqrt %11 : (!x) -> !x
  %13 = lathe.recip %12 : (!x) -> !x
  %14 = lathe.sin %13 : (!x) -> !x
  %15 = lathe.cos %14 : (!x) -> !x
  %16 = lathe.tan %15 : (!x) -> !x
  %17 = lathe.asin %16 : (!x) -> !x
  %18 = lathe.acos %17 : (!x) -> !x
  %19 = lathe.atan %18 : (!x) -> !x
  %20 = lathe.sinh %19 : (!x) -> !x
  %21 = lathe.cosh %20 : (!x) -> !x
  %22 = lathe.tanh %21 : (!x) -> !x
  %23 = lathe.asinh %22 : (!x) -> !x
  %24 = lathe.acosh %23 : (!x) -> !x
  %25 = lathe.atanh %24 : (!x) -> !x
  %26 = lathe.erf %25 : (!x) -> !x
  // CHECK: lathe.sigmoid
  %27 = lathe.sigmoid %26 : (!x) -> !x
  return %27 : !x
}

// CHECK-LABEL: func.func @tests
func.func @tests(%x: !x) -> (tensor<?x4xi1, #lathe.t<[B, 4]>>, tensor<?x4xi1, #lathe.t<[B, 4]>>, tensor<?x4xi1, #lathe.t<[B, 4]>>) {
  %0 = lathe.is_nan %x : (!x) -> tensor<?x4xi1, #lathe.t<[B, 4]>>
  // CHECK: lathe.is_inf %{{.*}} {negative = false}
  %1 = lathe.is_inf %x {negative = false} : (!x) -> tensor<?x4xi1, #lathe.t<[B, 4]>>
  %2 = lathe.not %1 : (tensor<?x4xi1, #lathe.t<[B, 4]>>) -> tensor<?x4xi1, #lathe.t<[B, 4]>>
  return %0, %1, %2 : tensor<?x4xi1, #lathe.t<[B, 4]>>, tensor<?x4xi1, #lathe.t<[B, 4]>>, tensor<?x4xi1, #lathe.t<[B, 4]>>
}

// Sizes broadcast as numpy does; unrelated symbols become bcast(a, b).
// CHECK-LABEL: func.func @broadcast
func.func @broadcast(%a: tensor<?x1xf32, #lathe.t<[B, 1]>>, %b: tensor<?xf32, #lathe.t<[S]>>, %c: tensor<?x?xf32, #lathe.t<[C, S]>>) {
  // CHECK: lathe.add {{.*}} -> tensor<?x?xf32, #lathe.t<[B, S]>>
  %0 = lathe.add %a, %b : (tensor<?x1xf32, #lathe.t<[B, 1]>>, tensor<?xf32, #lathe.t<[S]>>) -> tensor<?x?xf32, #lathe.t<[B, S]>>
  // CHECK: lathe.mul {{.*}} -> tensor<?x?xf32, #lathe.t<[bcast(B, C), S]>>
  %1 = lathe.mul %0, %c : (tensor<?x?xf32, #lathe.t<[B, S]>>, tensor<?x?xf32, #lathe.t<[C, S]>>) -> tensor<?x?xf32, #lathe.t<[bcast(B, C), S]>>
  return
}

// CHECK-LABEL: func.func @binary
func.func @binary(%a: tensor<4xf32>, %b: tensor<4xf32>, %i: tensor<4xi32>, %p: tensor<4xi1>) {
  %0 = lathe.sub %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = lathe.div %0, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // CHECK: lathe.mod %{{.*}}, %{{.*}} {fmod}
  %2 = lathe.mod %1, %b {fmod} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = lathe.pow %2, %i : (tensor<4xf32>, tensor<4xi32>) -> tensor<4xf32>
  %4 = lathe.max %3, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %5 = lathe.min %4, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = lathe.and %p, %p : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  %7 = lathe.or %6, %p : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  %8 = lathe.xor %7, %p : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  %9 = lathe.shl %i, %i : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  %10 = lathe.shr %9, %i : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  // CHECK: lathe.compare {{.*}} {predicate = #lathe.predicate<le>} : {{.*}} -> tensor<4xi1>
  %11 = lathe.compare %a, %b {predicate = #lathe.predicate<le>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %12 = lathe.select %11, %a, %b : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // CHECK: lathe.cast {{.*}} -> tensor<4xui8>
  %13 = lathe.cast %12 : (tensor<4xf32>) -> tensor<4xui8>
  %14 = lathe.bitcast %12 : (tensor<4xf32>) -> tensor<4xi32>
  return
}

// FOLD-LABEL: func.func @folds
func.func @folds(%x: tensor<4xf32>, %i: tensor<4xi32>, %p: tensor<4xi1>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xf32>, tensor<4xf32>) {
  %one = lathe.constant dense<1.0> : tensor<4xf32>
  %zero = lathe.constant dense<0.0> : tensor<4xf32>
  %izero = lathe.constant dense<0> : tensor<4xi32>
  %0 = lathe.mul %x, %one : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = lathe.div %x, %one : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = lathe.sub %x, %zero : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = lathe.add %i, %izero : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  %4 = lathe.select %p, %x, %x : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // x + 0.0 is kept: it is +0.0 for x = -0.0.
  // FOLD: %[[SUM:.*]] = lathe.add
  %5 = lathe.add %x, %zero : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // FOLD: return %arg0, %arg0, %arg0, %arg1, %arg0, %[[SUM]]
  return %0, %1, %2, %3, %4, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>, tensor<4xf32>, tensor<4xf32>
}
