// RUN: sed s/TARGET/sm_90a/ %s | %lathe-opt --lathe-fuse --lathe-name-kernels | FileCheck %s --check-prefix=GPU
// RUN: sed s/TARGET/x86-64-v3/ %s | %lathe-opt --lathe-fuse --lathe-name-kernels | FileCheck %s --check-prefix=CPU

module attributes {lathe.target = "TARGET"} {
  // A GPU computes updates, and where they go, in the threads that write them; a CPU, which writes
  // them one after another, reads them.
  // GPU-LABEL: @plain
  // GPU: lathe.kernel "scatter_nd_{{.*}}" copy
  // GPU-DAG: lathe.add
  // GPU-DAG: lathe.exp
  // GPU: lathe.scatter_nd
  // GPU-NOT: lathe.kernel
  // GPU: return
  // CPU-LABEL: @plain
  // CPU-COUNT-2: pointwise
  // CPU: lathe.kernel "scatter_nd_{{[0-9]+}}" copy
  func.func @plain(%x: tensor<40x16xf32>, %i: tensor<3x1xi64>, %j: tensor<3x1xi64>, %u: tensor<3x16xf32>) -> tensor<40x16xf32> {
    %0 = lathe.add %i, %j : (tensor<3x1xi64>, tensor<3x1xi64>) -> tensor<3x1xi64>
    %1 = lathe.exp %u : (tensor<3x16xf32>) -> tensor<3x16xf32>
    %2 = lathe.scatter_nd %x, %0, %1 : (tensor<40x16xf32>, tensor<3x1xi64>, tensor<3x16xf32>) -> tensor<40x16xf32>
    return %2 : tensor<40x16xf32>
  }

  // Sums have an order: one after another here too.
  // GPU-LABEL: @summed
  // GPU-COUNT-2: pointwise
  // GPU: lathe.kernel "scatter_nd_{{[0-9]+}}" copy
  func.func @summed(%x: tensor<40x16xf32>, %i: tensor<3x1xi64>, %j: tensor<3x1xi64>, %u: tensor<3x16xf32>) -> tensor<40x16xf32> {
    %0 = lathe.add %i, %j : (tensor<3x1xi64>, tensor<3x1xi64>) -> tensor<3x1xi64>
    %1 = lathe.exp %u : (tensor<3x16xf32>) -> tensor<3x16xf32>
    %2 = lathe.scatter_nd %x, %0, %1 {reduction = #lathe.reduce_kind<sum>} : (tensor<40x16xf32>, tensor<3x1xi64>, tensor<3x16xf32>) -> tensor<40x16xf32>
    return %2 : tensor<40x16xf32>
  }
}
