// RUN: %lathe-opt --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --lathe-verify-planned %s | FileCheck %s

module attributes {lathe.target = "x86-64-v3"} {
  lathe.symbol @N {max = -1 : i64, min = 0 : i64, multiple_of = 1 : i64, opt = 4 : i64, origin = "rows[0]"}
  lathe.symbol @i {max = -1 : i64, min = 0 : i64, multiple_of = 1 : i64, opt = 0 : i64, origin = "iteration"}
  // What the loop does not change runs before it. What is carried lies where the result shall be; a
  // swap is saved first; a row is written to its place.
  // CHECK-LABEL: exec.program @main
  // CHECK: exec.size "i" {{.*}}origin = #exec.origin<iteration>
  // CHECK: %[[Y:.*]] = exec.buffer "y" {kind = #exec.kind<output>}
  // CHECK: %[[R:.*]] = exec.buffer "r" {index = 1 : i64, kind = #exec.kind<output>}
  // CHECK: %[[P:.*]] = exec.buffer "" {kind = #exec.kind<arena>
  // CHECK: %[[T:.*]] = exec.buffer "" {{.*}}kind = #exec.kind<host>
  // CHECK: %[[ROW:.*]] = exec.buffer "" of %[[R]] {{.*}}offset = #lathe.dim<16384*i>
  // CHECK: exec.launch @matmul_{{[0-9]+}}({{.*}}, %[[P]])
  // CHECK: exec.copy %{{.*}} to %[[Y]]
  // CHECK: exec.copy %{{.*}} to %[[T]]
  // CHECK: exec.loop trips %[[T]] : tensor<i64> {iteration = "i"}
  // CHECK: exec.launch @matmul_{{[a-z_]*[0-9]+}}(%[[Y]], %[[P]], %[[NEW:.*]])
  // CHECK: exec.copy %[[NEW]] to %[[ROW]]
  // CHECK: exec.copy %[[Z:[0-9]+]] to %[[SAVED:[0-9]+]]
  // CHECK: exec.copy %[[SAVED]] to %[[Y]]
  // CHECK: exec.copy %[[NEW]] to %[[Z]]
  // CHECK: exec.end_loop
  func.func @main(%x: tensor<64x64xf32> {lathe.name = "x"}, %n: tensor<i64> {lathe.name = "n"}, %rows: tensor<?xf32, #lathe.t<[N]>> {lathe.name = "rows"}) -> (tensor<64x64xf32> {lathe.name = "y"}, tensor<?x64x64xf32, #lathe.t<[N, 64, 64]>> {lathe.name = "r"}) {
    %zero = lathe.constant dense<0> : tensor<i64>
    %one = lathe.constant dense<1> : tensor<i64>
    %i, %a, %b = lathe.loop_begin(%zero, %x, %x) : tensor<i64>, tensor<64x64xf32>, tensor<64x64xf32> -> tensor<i64>, tensor<64x64xf32>, tensor<64x64xf32>
    %p = lathe.matmul %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %next = lathe.add %i, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %c = lathe.matmul %a, %p : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %j, %y, %z, %r = lathe.loop_end %i : tensor<i64> trips %n : tensor<i64> nexts(%next, %b, %c : tensor<i64>, tensor<64x64xf32>, tensor<64x64xf32>) rows(%c : tensor<64x64xf32>) {iteration = "i"} -> tensor<i64>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<?x64x64xf32, #lathe.t<[N, 64, 64]>>
    return %y, %r : tensor<64x64xf32>, tensor<?x64x64xf32, #lathe.t<[N, 64, 64]>>
  }
}
