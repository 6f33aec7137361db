// RUN: %lathe-translate --tile-to-llvm %s | llc -O3 -mtriple=aarch64-linux-gnu -mattr=+dotprod | FileCheck %s
// ARM multiplies bytes of one sign alone (sdot): unsigned ones are flipped, and 128 times the sum of the others is added,
// once for two rows that share them.

// CHECK-LABEL: rows:
// CHECK-COUNT-3: sdot v{{[0-9]+}}.4s, v{{[0-9]+}}.16b, v{{[0-9]+}}.16b
// CHECK-NOT: sdot
// CHECK: ret
func.func @rows(%acc: memref<?xi32>, %a: memref<?xi8>, %b: memref<?xi8>) attributes {tile.kernel = #tile.launch<threads = 1, target = "armv8-a-dotprod">} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c16 = arith.constant 16 : index
  %0 = tile.load %acc[%c0] : memref<?xi32> -> vector<4xi32>
  %1 = tile.load %acc[%c4] : memref<?xi32> -> vector<4xi32>
  %2 = tile.load %a[%c0] : memref<?xi8> -> vector<16xi8>
  %3 = tile.load %a[%c16] : memref<?xi8> -> vector<16xi8>
  %4 = tile.load %b[%c0] : memref<?xi8> -> vector<16xi8>
  %5 = tile.dot %0, %2 unsigned, %4 : vector<4xi32>, vector<16xi8>
  %6 = tile.dot %1, %3 unsigned, %4 : vector<4xi32>, vector<16xi8>
  tile.store %5, %acc[%c0] : vector<4xi32>, memref<?xi32>
  tile.store %6, %acc[%c4] : vector<4xi32>, memref<?xi32>
  return
}

// Without it, the general form.
// CHECK-LABEL: general:
// CHECK-NOT: sdot
// CHECK: ret
func.func @general(%acc: memref<?xi32>, %a: memref<?xi8>, %b: memref<?xi8>) attributes {tile.kernel = #tile.launch<threads = 1, target = "armv8-a">} {
  %c0 = arith.constant 0 : index
  %0 = tile.load %acc[%c0] : memref<?xi32> -> vector<4xi32>
  %1 = tile.load %a[%c0] : memref<?xi8> -> vector<16xi8>
  %2 = tile.load %b[%c0] : memref<?xi8> -> vector<16xi8>
  %3 = tile.dot %0, %1 unsigned, %2 : vector<4xi32>, vector<16xi8>
  tile.store %3, %acc[%c0] : vector<4xi32>, memref<?xi32>
  return
}
