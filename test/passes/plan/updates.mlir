// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --lathe-verify-planned %s | FileCheck %s
// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

module attributes {lathe.target = "x86-64-v3"} {
  // Both updates are made in the memory of the donated input; what reads it before them runs first,
  // although it is written last.
  // CHECK-LABEL: exec.program @donated
  // CHECK: %[[POOL:.*]] = exec.buffer "pool" {kind = #exec.kind<input>}
  // CHECK: exec.input "pool" %[[POOL]] {donated_to = 0 : i64}
  // CHECK: %[[NEXT:.*]] = exec.buffer "next" of %[[POOL]] {{.*}}kind = #exec.kind<view>
  // CHECK: exec.output "next" %[[NEXT]]
  // CHECK: %[[OLD:.*]] = exec.buffer "old" {{.*}}kind = #exec.kind<output>
  // CHECK: %[[ONCE:.*]] = exec.buffer {{.*}} of %[[NEXT]] {{.*}}kind = #exec.kind<view>
  // CHECK-NOT: exec.copy
  // CHECK: exec.launch @reduce{{.*}}(%[[POOL]], %[[OLD]])
  // CHECK-NOT: exec.copy
  // CHECK: exec.launch @scatter{{.*}}(%[[ONCE]], %{{.*}}, %{{.*}}, %[[ONCE]])
  // CHECK-NOT: exec.copy
  // CHECK: exec.launch @scatter{{.*}}(%[[NEXT]], %{{.*}}, %{{.*}}, %[[NEXT]])
  // CHECK-NOT: exec.copy
  // REMARK: is updated in place
  func.func @donated(%pool: tensor<40x16xf32> {lathe.name = "pool", lathe.donated_to = "next"},
                     %i: tensor<3x1xi64>, %j: tensor<3x1xi64>, %u: tensor<3x16xf32>)
      -> (tensor<40x16xf32> {lathe.name = "next"}, tensor<40xf32> {lathe.name = "old"}) {
    %0 = lathe.scatter_nd %pool, %i, %u : (tensor<40x16xf32>, tensor<3x1xi64>, tensor<3x16xf32>) -> tensor<40x16xf32>
    %1 = lathe.scatter_nd %0, %j, %u : (tensor<40x16xf32>, tensor<3x1xi64>, tensor<3x16xf32>) -> tensor<40x16xf32>
    %2 = lathe.reduce %pool {axes = array<i64: 1>, keepdims = false, kind = #lathe.reduce_kind<sum>} : (tensor<40x16xf32>) -> tensor<40xf32>
    return %1, %2 : tensor<40x16xf32>, tensor<40xf32>
  }

  // Nobody donates: the input is copied to the output once, and both updates are made there.
  // CHECK-LABEL: exec.program @kept
  // CHECK: %[[POOL:.*]] = exec.buffer "pool" {kind = #exec.kind<input>}
  // CHECK: %[[NEXT:.*]] = exec.buffer "next" {kind = #exec.kind<output>}
  // CHECK: %[[ONCE:.*]] = exec.buffer {{.*}} of %[[NEXT]] {{.*}}kind = #exec.kind<view>
  // CHECK: exec.copy %[[POOL]] to %[[ONCE]]
  // CHECK-NOT: exec.copy
  // CHECK: exec.launch @scatter{{.*}}(%[[ONCE]], %{{.*}}, %{{.*}}, %[[ONCE]])
  // CHECK-NOT: exec.copy
  // CHECK: exec.launch @scatter{{.*}}(%[[NEXT]], %{{.*}}, %{{.*}}, %[[NEXT]])
  // CHECK-NOT: exec.copy
  func.func @kept(%pool: tensor<40x16xf32> {lathe.name = "pool"},
                  %i: tensor<3x1xi64>, %j: tensor<3x1xi64>, %u: tensor<3x16xf32>)
      -> (tensor<40x16xf32> {lathe.name = "next"}) {
    %0 = lathe.scatter_nd %pool, %i, %u : (tensor<40x16xf32>, tensor<3x1xi64>, tensor<3x16xf32>) -> tensor<40x16xf32>
    %1 = lathe.scatter_nd %0, %j, %u : (tensor<40x16xf32>, tensor<3x1xi64>, tensor<3x16xf32>) -> tensor<40x16xf32>
    return %1 : tensor<40x16xf32>
  }

  // The old pool is read together with the new one.
  // CHECK-LABEL: exec.program @both
  // CHECK: %[[POOL:.*]] = exec.buffer "pool" {kind = #exec.kind<input>}
  // CHECK: exec.input "pool" %[[POOL]] :
  // CHECK: %[[NEXT:.*]] = exec.buffer "next" {kind = #exec.kind<output>}
  // CHECK: exec.copy %[[POOL]] to %[[NEXT]]
  // CHECK: exec.launch @scatter{{.*}}(%[[NEXT]], %{{.*}}, %{{.*}}, %[[NEXT]])
  // REMARK: is copied into output {{.*}}what is overwritten is read later
  func.func @both(%pool: tensor<40x16xf32> {lathe.name = "pool", lathe.donated_to = "next"},
                  %i: tensor<3x1xi64>, %u: tensor<3x16xf32>)
      -> (tensor<40x16xf32> {lathe.name = "next"}, tensor<40x16xf32> {lathe.name = "sum"}) {
    %0 = lathe.scatter_nd %pool, %i, %u : (tensor<40x16xf32>, tensor<3x1xi64>, tensor<3x16xf32>) -> tensor<40x16xf32>
    %1 = lathe.add %pool, %0 : (tensor<40x16xf32>, tensor<40x16xf32>) -> tensor<40x16xf32>
    return %0, %1 : tensor<40x16xf32>, tensor<40x16xf32>
  }

  // Two updates of one input: the second has the memory, after the first has its copy.
  // CHECK-LABEL: exec.program @twice
  // CHECK: %[[POOL:.*]] = exec.buffer "pool" {kind = #exec.kind<input>}
  // CHECK: %[[NEXT:.*]] = exec.buffer "next" of %[[POOL]]
  // CHECK: %[[OTHER:.*]] = exec.buffer "other" {{.*}}kind = #exec.kind<output>
  // CHECK: exec.copy %[[POOL]] to %[[OTHER]]
  // CHECK: exec.launch @scatter{{.*}}(%[[OTHER]], %{{.*}}, %{{.*}}, %[[OTHER]])
  // CHECK: exec.launch @scatter{{.*}}(%[[NEXT]], %{{.*}}, %{{.*}}, %[[NEXT]])
  // REMARK: is updated in place
  func.func @twice(%pool: tensor<40x16xf32> {lathe.name = "pool", lathe.donated_to = "next"},
                   %i: tensor<3x1xi64>, %j: tensor<3x1xi64>, %u: tensor<3x16xf32>)
      -> (tensor<40x16xf32> {lathe.name = "next"}, tensor<40x16xf32> {lathe.name = "other"}) {
    %0 = lathe.scatter_nd %pool, %i, %u : (tensor<40x16xf32>, tensor<3x1xi64>, tensor<3x16xf32>) -> tensor<40x16xf32>
    %1 = lathe.scatter_nd %pool, %j, %u : (tensor<40x16xf32>, tensor<3x1xi64>, tensor<3x16xf32>) -> tensor<40x16xf32>
    return %0, %1 : tensor<40x16xf32>, tensor<40x16xf32>
  }

  // What is given back is no update.
  // REMARK: is copied into output {{.*}}no update of the input makes it
  func.func @none(%pool: tensor<40x16xf32> {lathe.name = "pool", lathe.donated_to = "next"})
      -> (tensor<40x16xf32> {lathe.name = "next"}) {
    %0 = lathe.exp %pool : (tensor<40x16xf32>) -> tensor<40x16xf32>
    return %0 : tensor<40x16xf32>
  }

  // The product that reads the old values is moved ahead of the update, and what stands behind both keeps its place.
  // CHECK-LABEL: exec.program @moved
  // CHECK: exec.launch @matmul
  // CHECK: exec.launch @matmul
  // CHECK: exec.launch @scatter
  // CHECK: exec.launch @matmul
  func.func @moved(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %i: tensor<2x1xi64>, %u: tensor<2x8xf32>)
      -> (tensor<4x8xf32> {lathe.name = "s"}, tensor<4x8xf32> {lathe.name = "d"}) {
    %t = lathe.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %s = lathe.scatter_nd %t, %i, %u : (tensor<4x8xf32>, tensor<2x1xi64>, tensor<2x8xf32>) -> tensor<4x8xf32>
    %r = lathe.matmul %t, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %d = lathe.matmul %r, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    return %s, %d : tensor<4x8xf32>, tensor<4x8xf32>
  }
}
