// RUN: %lathe-opt --lathe-fuse %s | FileCheck %s
//
// Where several values are read at each leaf, a kernel of its own walks through the trees, once; one value is
// read where the walk ends.
//
// CHECK-LABEL: func.func @classes
// CHECK: lathe.kernel {{.*}} pointwise
// CHECK: lathe.tree_walk
// CHECK: lathe.kernel {{.*}} reduction
// CHECK-NOT: lathe.tree_walk
// CHECK: lathe.gather
// CHECK: lathe.reduce
module attributes {lathe.target = "x86-64-v3"} {
func.func @classes(%x: tensor<9x4xf32>, %n: tensor<7x4xi32>, %r: tensor<50xi32>, %w: tensor<8x3xf32>) -> tensor<9x3xf32> {
  %l = lathe.tree_walk %x, %n, %r {depth = 3 : i64, walks_apart} : (tensor<9x4xf32>, tensor<7x4xi32>, tensor<50xi32>) -> tensor<9x50xi32>
  %p = lathe.gather %w, %l {axis = 0 : i64} : (tensor<8x3xf32>, tensor<9x50xi32>) -> tensor<9x50x3xf32>
  %y = lathe.reduce %p {axes = array<i64: 1>, keepdims = false, kind = #lathe.reduce_kind<sum>} : (tensor<9x50x3xf32>) -> tensor<9x3xf32>
  return %y : tensor<9x3xf32>
}
// CHECK-LABEL: func.func @one
// CHECK: lathe.kernel {{.*}} reduction
// CHECK: lathe.tree_walk
// CHECK: lathe.gather
// CHECK: lathe.reduce
// CHECK-NOT: lathe.kernel
func.func @one(%x: tensor<9x4xf32>, %n: tensor<7x4xi32>, %r: tensor<50xi32>, %w: tensor<8xf32>) -> tensor<9xf32> {
  %l = lathe.tree_walk %x, %n, %r {depth = 3 : i64} : (tensor<9x4xf32>, tensor<7x4xi32>, tensor<50xi32>) -> tensor<9x50xi32>
  %p = lathe.gather %w, %l {axis = 0 : i64} : (tensor<8xf32>, tensor<9x50xi32>) -> tensor<9x50xf32>
  %y = lathe.reduce %p {axes = array<i64: 1>, keepdims = false, kind = #lathe.reduce_kind<sum>} : (tensor<9x50xf32>) -> tensor<9xf32>
  return %y : tensor<9xf32>
}
// Features that are computed are stored: walks read them again and again, at places that only they know.
// CHECK-LABEL: func.func @computed
// CHECK: lathe.kernel {{.*}} pointwise
// CHECK: lathe.sub
// CHECK: lathe.kernel {{.*}} reduction
// CHECK-NOT: lathe.sub
// CHECK: lathe.tree_walk
func.func @computed(%x: tensor<1x4xi32>, %n: tensor<7x4xi32>, %r: tensor<50xi32>, %w: tensor<7xf32>) -> tensor<1xf32> {
  %o = lathe.constant dense<5> : tensor<i32>
  %k = lathe.sub %o, %x : (tensor<i32>, tensor<1x4xi32>) -> tensor<1x4xi32>
  %l = lathe.tree_walk %k, %n, %r {depth = 3 : i64, ends_at_nodes} : (tensor<1x4xi32>, tensor<7x4xi32>, tensor<50xi32>) -> tensor<1x50xi32>
  %p = lathe.gather %w, %l {axis = 0 : i64} : (tensor<7xf32>, tensor<1x50xi32>) -> tensor<1x50xf32>
  %y = lathe.reduce %p {axes = array<i64: 1>, keepdims = false, kind = #lathe.reduce_kind<sum>} : (tensor<1x50xf32>) -> tensor<1xf32>
  return %y : tensor<1xf32>
}
}
