// RUN: %lathe-opt --lathe-shard --split-input-file %s | FileCheck %s
// RUN: %lathe-opt --lathe-shard --split-input-file --remarks-filter=lathe --remark-policy=all %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// A sum with a constant is cheapest where each rank has all of it: 256 KB, and as much of the result.
// REMARK: entry 'roomy' on 2 ranks: no collectives; {{.*}} us and 524288 bytes of a rank
// CHECK-LABEL: func.func @roomy
// CHECK-NOT: lathe.all_gather
module attributes {lathe.options = {mesh = ["tp=2"]}} {
  func.func @roomy(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
    %c = lathe.constant dense<2.0> : tensor<256x256xf32>
    %0 = lathe.add %x, %c : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    return %0 : tensor<256x256xf32>
  }
}

// -----

// With less, each has its part, and the result is brought together.
// REMARK: entry 'tight' on 2 ranks: 1 all_gather; {{.*}} us and 262144 bytes of a rank
// CHECK-LABEL: func.func @tight
// CHECK: lathe.add {{.*}} -> tensor<{{128x256|256x128}}xf32>
// CHECK: lathe.all_gather
module attributes {lathe.options = {mesh = ["tp=2"], "rank-memory" = ["400000"]}} {
  func.func @tight(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
    %c = lathe.constant dense<2.0> : tensor<256x256xf32>
    %0 = lathe.add %x, %c : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    return %0 : tensor<256x256xf32>
  }
}

// -----

// A constant that two ops read is there once where both want it alike: whole for one and in parts for the other takes more.
// REMARK: entry 'tied' on 2 ranks: {{.*}} us and 393216 bytes of a rank
// CHECK-LABEL: func.func @tied
module attributes {lathe.options = {mesh = ["tp=2"], "rank-memory" = ["700000"]}} {
  func.func @tied(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
    %c = lathe.constant dense<2.0> : tensor<256x256xf32>
    %0 = lathe.add %x, %c : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    %1 = lathe.mul %x, %c : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    return %0, %1 : tensor<256x256xf32>, tensor<256x256xf32>
  }
}
